//! Canonical requests of AWS Signature Version 4 (IAM User Guide, "Create a signed AWS API request"; S3 API reference,
//! "Signature Calculations for the Authorization Header"). Pure.
use super::presented::Scope;
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use zeroize::Zeroizing;

/// What stands for itself (RFC 3986 section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// What stands for itself in a path that is encoded already.
const IN_PATH: &AsciiSet = &ENCODED.remove(b'/').remove(b'%');
/// The same in a path that is encoded once more.
const IN_PATH_AGAIN: &AsciiSet = &ENCODED.remove(b'/');

/// All of a canonical request but the last line, the payload's hash. May hold a session token, so it is wiped.
pub(super) fn request(head: &Parts, host: &str, scope: &Scope, fields: &[String]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::new());
    let mut line = |parts: &[&[u8]]| {
        for part in parts {
            text.extend_from_slice(part);
        }
        text.push(b'\n');
    };
    line(&[head.method.as_str().as_bytes()]);
    line(&[path(head.uri.path(), scope).as_bytes()]);
    line(&[query(head.uri.query().unwrap_or_default()).as_bytes()]);
    for name in fields {
        let value = match name.as_str() {
            "host" => Zeroizing::new(host.as_bytes().to_vec()),
            _ => field(&head.headers, name),
        };
        line(&[name.as_bytes(), b":", &value]);
    }
    line(&[]);
    line(&[fields.join(";").as_bytes()]);
    text
}

/// Names and values of a query, decoded.
pub(super) fn decoded_pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    pairs(query)
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

/// A name or value as it stands in a query.
pub(super) fn encoded(text: &str) -> Zeroizing<String> {
    Zeroizing::new(percent_encode(text.as_bytes(), ENCODED).to_string())
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn path(path: &str, scope: &Scope) -> String {
    if scope.is_s3() {
        return percent_encode(path.as_bytes(), IN_PATH).to_string();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    let ends = path.len() > 1 && (path.ends_with('/') || path.ends_with("/.") || path.ends_with("/.."));
    let mut whole = segments
        .iter()
        .fold(String::new(), |whole, segment| whole + "/" + segment);
    if whole.is_empty() || ends {
        whole.push('/');
    }
    percent_encode(whole.as_bytes(), IN_PATH_AGAIN).to_string()
}

/// Each pair decoded and encoded in the one way, sorted; without the signature itself.
fn query(query: &str) -> Zeroizing<String> {
    let canonical = |text: &str| {
        let text = text.replace('+', " ");
        percent_encode(&percent_decode_str(&text).collect::<Vec<u8>>(), ENCODED).to_string()
    };
    let mut pairs: Vec<(String, String)> = pairs(query)
        .map(|(name, value)| (canonical(name), canonical(value)))
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    pairs.sort();
    let mut text = Zeroizing::new(String::new());
    for (name, value) in &pairs {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    text
}

/// The values of a field, each without spaces around it and with single ones inside.
fn field(headers: &HeaderMap, name: &str) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::new());
    for (number, value) in headers.get_all(name).iter().enumerate() {
        if number > 0 {
            text.push(b',');
        }
        let mut space = false;
        for byte in value.as_bytes().trim_ascii() {
            if *byte != b' ' || !space {
                text.push(*byte);
            }
            space = *byte == b' ';
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(service: &str) -> Scope {
        Scope {
            date: "20150830".into(),
            region: "us-east-1".into(),
            service: service.into(),
        }
    }

    fn head(target: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_path_is_normalised_and_encoded_again_but_not_for_s3() {
        for (raw, s3, other) in [
            ("/", "/", "/"),
            ("/a/../b/./c/", "/a/../b/./c/", "/b/c/"),
            ("//example//", "//example//", "/example/"),
            ("/a%20b%2Fc", "/a%20b%2Fc", "/a%2520b%252Fc"),
            ("/a:b=c", "/a%3Ab%3Dc", "/a%3Ab%3Dc"),
        ] {
            assert_eq!(path(raw, &scope("s3")), s3);
            assert_eq!(path(raw, &scope("iam")), other);
        }
    }

    #[test]
    fn a_query_is_sorted_and_encoded_in_one_way() {
        for (raw, wanted) in [
            ("Param2=value2&Param1=value1", "Param1=value1&Param2=value2"),
            ("acl", "acl="),
            ("p=b&p=a&X-Amz-Signature=00", "p=a&p=b"),
            ("a=x/y+z&b=%c3%bc", "a=x%2Fy%20z&b=%C3%BC"),
        ] {
            assert_eq!(query(raw).as_str(), wanted);
        }
    }

    #[test]
    fn fields_are_trimmed_and_joined() {
        let head = head(
            "/",
            &[
                ("my-header1", " value1 "),
                ("my-header1", "a   b"),
                ("host", "wrong.test"),
            ],
        );
        let names = ["host".to_owned(), "my-header1".to_owned()];
        let text = request(&head, "example.test", &scope("service"), &names);
        assert_eq!(
            String::from_utf8_lossy(&text),
            "GET\n/\n\nhost:example.test\nmy-header1:value1,a b\n\nhost;my-header1\n"
        );
    }
}
