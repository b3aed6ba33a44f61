//! Signing anew, held against the published examples and against AWS's own signer.
use super::*;
use crate::secret::testing;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode,
};
use aws_sigv4::sign::v4;
use bytes::BytesMut;
use http::Request;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The keys of the published examples, and others.
const EXAMPLE: [&str; 2] = ["AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"];
const IAM_EXAMPLE: [&str; 2] = ["AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"];
const OTHER: [&str; 2] = ["AKIAXQ4ZPLW9TRB7YUVM", "Zq8Lw2Xv7Rt4Yb6Nc9Md1Ke3Jf5Hg0Pa2Ts8UvWx"];
const SESSION: &str = "FwoGZXIvYXdzEBYaDHqa0AP/wZq8Lw2Xv7Rt4+Yb6Nc9Md1Ke==";
const LONGEST: usize = 1 << 17;

/// A session that holds some keys for others.
fn session(held: [&str; 2], real: [&str; 2], token: Option<&str>) -> SessionSecrets {
    let text = |[id, secret]: [&str; 2], token: Option<&str>| {
        let token = token.map_or(String::new(), |token| {
            format!(",\"aws_session_token\":\"{token}\"")
        });
        format!("{{\"aws_access_key_id\":\"{id}\",\"aws_secret_access_key\":\"{secret}\"{token}}}")
    };
    let binding = Binding {
        places: vec![Place::AwsSigv4],
        placeholders: vec![text(held, None)],
        value: Some(Arc::new(Value::new(text(real, token).into_bytes()))),
        ..testing::bound("aws", testing::SECRET)
    };
    SessionSecrets::new(vec![binding]).unwrap()
}

fn permit() -> Permit {
    testing::permit("aws", "aws-sigv4")
}

fn again(
    secrets: &SessionSecrets,
    head: &mut Parts,
    (host, now): (&str, &str),
    body: &[u8],
) -> Result<Option<ChunkSigner>, Leak> {
    let presented = secrets.presented(head)?;
    let presented = presented.map(|presented| match presented.wants_hash() {
        true => presented.with_body([body].into_iter()),
        false => presented,
    });
    let signing = Signing {
        permit: &permit(),
        tls: true,
        host,
        now: now.parse().unwrap(),
        chunk_bytes: LONGEST,
    };
    let signed = secrets.sign_anew(presented.as_ref(), &signing, head)?;
    Ok(signed.and_then(|(name, signer)| {
        assert_eq!(name, "aws");
        signer
    }))
}

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// All that is sent of a head.
fn visible(head: &Parts) -> String {
    let fields = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    format!("{}\n{}", head.uri, fields.collect::<String>())
}

fn authorization(head: &Parts) -> &str {
    head.headers["authorization"].to_str().unwrap()
}

const MADE: &str = "2013-05-24T00:00:00Z";
const TODAY: &str = "2026-11-30T10:15:00Z";
const S3: &str = "examplebucket.s3.amazonaws.com";

/// Signs with other keys today and then with the example's on its day: the same as the example.
fn there_and_back(head: &mut Parts, host: &str, (example, made): ([&str; 2], &str), body: &[u8]) {
    again(&session(example, OTHER, None), head, (host, TODAY), body).unwrap();
    let text = visible(head);
    assert!(!text.contains(example[0]), "{text}");
    assert!(
        text.contains("20261130/") || text.contains("20261130%2F"),
        "{text}"
    );
    again(&session(OTHER, example, None), head, (host, made), body).unwrap();
}

#[test]
fn the_published_examples_are_signed_as_published() {
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let example = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    let fields = [
        ("host", S3),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", empty),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", example),
    ];
    let mut get = head("GET", "/test.txt", &fields);
    there_and_back(&mut get, S3, (EXAMPLE, MADE), b"");
    assert_eq!(authorization(&get), example);

    let example = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date, \
         Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
    let fields = [
        ("host", "iam.amazonaws.com"),
        ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("x-amz-date", "20150830T123600Z"),
        ("authorization", example),
    ];
    let mut list = head("GET", "/?Action=ListUsers&Version=2010-05-08", &fields);
    there_and_back(
        &mut list,
        "iam.amazonaws.com",
        (IAM_EXAMPLE, "2015-08-30T12:36:00Z"),
        b"",
    );
    assert_eq!(authorization(&list), example);
}

#[test]
fn the_published_link_is_signed_as_published() {
    let link = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
         aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&\
         X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let mut get = head("GET", link, &[("host", S3)]);
    there_and_back(&mut get, S3, (EXAMPLE, MADE), b"");
    let query = get.uri.query().unwrap();
    for part in link.split_once('?').unwrap().1.split('&') {
        assert!(query.split('&').any(|its| its == part), "{part} in {query}");
    }
}

/// The published example of a body in chunks: 65 KiB of `a` in chunks of 64 KiB.
fn chunks(signatures: [&str; 3]) -> Vec<u8> {
    let chunk = |size: usize, signature: &str| {
        let line = format!("{size:x};chunk-signature={signature}\r\n");
        let end = if size > 0 { "\r\n" } else { "" };
        [line.as_bytes(), &vec![b'a'; size], end.as_bytes()].concat()
    };
    [
        chunk(65536, signatures[0]),
        chunk(1024, signatures[1]),
        chunk(0, signatures[2]),
    ]
    .concat()
}

fn chunked_head(payload: &str, signed: &str, further: &[(&str, &str)]) -> Parts {
    let fields = [
        ("host", "s3.amazonaws.com"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("authorization", signed),
        ("x-amz-content-sha256", payload),
        ("content-encoding", "aws-chunked"),
        ("x-amz-decoded-content-length", "66560"),
    ];
    head(
        "PUT",
        "/examplebucket/chunkObject.txt",
        &[&fields, further].concat(),
    )
}

fn through(mut signer: ChunkSigner, body: &[u8], size: usize) -> Result<Vec<u8>, ChunkFault> {
    let mut out = BytesMut::new();
    for piece in body.chunks(size) {
        signer.push(piece, &mut out)?;
    }
    signer.finish(&mut out)?;
    Ok(out.to_vec())
}

/// Both ways: with other keys today, then with the example's on its day.
fn chunks_there_and_back(mut head: Parts, body: &[u8]) {
    let host = "s3.amazonaws.com";
    let (to, from) = (session(EXAMPLE, OTHER, None), session(OTHER, EXAMPLE, None));
    let published = authorization(&head).to_owned();
    for size in [1 << 20, 1000, 77] {
        let signer = again(&to, &mut head, (host, TODAY), b"").unwrap().unwrap();
        let ours = through(signer, body, size).unwrap();
        assert_eq!(ours.len(), body.len());
        assert_ne!(ours, body);
        let signer = again(&from, &mut head, (host, MADE), b"").unwrap().unwrap();
        assert!(through(signer, &ours, size).unwrap() == body, "as published");
        assert_eq!(authorization(&head), published);
    }
}

#[test]
fn the_published_chunks_are_signed_as_published() {
    let signed = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
         x-amz-storage-class, Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    let mut body = chunks([
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ]);
    body.extend_from_slice(b"\r\n");
    let head = || chunked_head(CHUNKS, signed, &[("content-length", "66824")]);
    chunks_there_and_back(head(), &body);

    let secrets = session(EXAMPLE, OTHER, None);
    let signer = || {
        again(&secrets, &mut head(), ("s3.amazonaws.com", TODAY), b"")
            .unwrap()
            .unwrap()
    };
    let mut changed = body.clone();
    changed[1000] = b'b';
    let fault = through(signer(), &changed, 5000).unwrap_err().to_string();
    assert!(fault.contains("not made with the placeholder"), "{fault}");
    let fault = through(signer(), &body[..66_000], 5000).unwrap_err().to_string();
    assert!(fault.contains("before its last chunk"), "{fault}");
    let fault = through(signer(), b"zz;chunk-signature=0\r\n", 3)
        .unwrap_err()
        .to_string();
    assert!(fault.contains("SIZE;chunk-signature"), "{fault}");
    let fault = through(signer(), &[b'0'; 200], 50).unwrap_err().to_string();
    assert!(fault.contains("too long"), "{fault}");
    let large = format!("{:x};chunk-signature={}\r\n", LONGEST + 1, "0".repeat(64));
    let fault = through(signer(), large.as_bytes(), 50).unwrap_err().to_string();
    assert!(fault.contains("smaller ones"), "{fault}");
}

#[test]
fn the_published_trailer_is_signed_as_published() {
    let signed = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;\
         x-amz-trailer, Signature=106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    let mut body = chunks([
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ]);
    let trailer = "x-amz-checksum-crc32c:sOO8/Q==\r\n\
         x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
    body.extend_from_slice(trailer.as_bytes());
    let further = [("x-amz-trailer", "x-amz-checksum-crc32c")];
    chunks_there_and_back(chunked_head(CHUNKS_AND_TRAILER, signed, &further), &body);
}

/// A request as AWS's signer makes it.
struct Sent<'a> {
    method: &'a str,
    uri: &'a str,
    fields: &'a [(&'a str, &'a str)],
    body: SignableBody<'a>,
    service: &'a str,
    linked: bool,
}

fn settings(service: &str, linked: bool) -> SigningSettings {
    let mut settings = SigningSettings::default();
    if service == "s3" {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    if linked {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(900));
    }
    settings
}

/// Signs; the signature, and the request with it.
fn by_aws(
    sent: &Sent<'_>,
    settings: SigningSettings,
    keys: ([&str; 2], Option<&str>),
    at: SystemTime,
) -> (String, Parts) {
    let ([id, secret], token) = keys;
    let identity = Credentials::new(id, secret, token.map(str::to_owned), None, "test").into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region("eu-test-1")
        .name(sent.service)
        .time(at)
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let fields = sent.fields.iter().copied();
    let signable = SignableRequest::new(sent.method, sent.uri, fields, sent.body.clone()).unwrap();
    let (instructions, signature) = aws_sigv4::http_request::sign(signable, &params)
        .unwrap()
        .into_parts();
    let mut request = Request::builder().method(sent.method).uri(sent.uri);
    for (name, value) in sent.fields {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    instructions.apply_to_request_http1x(&mut request);
    (signature, request.into_parts().0)
}

/// Whether a signed request is right by AWS's own signer, from what will be sent alone.
fn holds(head: &Parts, sent: &Sent<'_>, keys: ([&str; 2], Option<&str>)) -> bool {
    let shown = presented::read(if sent.linked { Way::Query } else { Way::Head }, head).unwrap();
    let set = [
        "host",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-content-sha256",
    ];
    let covered = shown.fields.iter().filter(|name| !set.contains(&name.as_str()));
    let fields: Vec<_> = covered
        .map(|name| (name.as_str(), head.headers[name.as_str()].to_str().unwrap()))
        .collect();
    let pairs = head.uri.query().unwrap_or_default().split('&');
    let pairs: Vec<_> = pairs
        .filter(|pair| !sent.linked || !pair.starts_with("X-Amz-"))
        .collect();
    let uri = format!("https://bucket.test{}?{}", head.uri.path(), pairs.join("&"));
    let mut settings = settings(sent.service, sent.linked);
    settings.excluded_headers = None;
    let again = Sent {
        uri: &uri,
        fields: &fields,
        body: sent.body.clone(),
        ..*sent
    };
    let at: Timestamp = TODAY.parse().unwrap();
    shown.at == "20261130T101500Z" && by_aws(&again, settings, keys, at.into()).0 == shown.signature
}

fn segment() -> impl Strategy<Value = String> {
    "[A-Za-z0-9._~ +:=@/ü-]{0,12}".prop_map(|text| canonical::encoded(&text).to_string())
}

proptest! {
    #[test]
    fn what_is_signed_anew_is_right_by_the_signer_of_aws(
        segments in prop::collection::vec(segment(), 0..4),
        pairs in prop::collection::vec((segment(), segment()), 0..4),
        note in "[!-~]([ -~]{0,20}[!-~])?",
        body in prop::collection::vec(any::<u8>(), 0..40),
        service in prop::sample::select(vec!["s3", "sts", "execute-api"]),
        (linked, has_token, skew) in (any::<bool>(), any::<bool>(), 0..4_000_000_u64),
    ) {
        let segments: Vec<_> = segments.iter().filter(|it| !it.is_empty() && *it != "." && *it != "..").map(String::as_str).collect();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("a{name}={value}")).collect();
        let uri = format!("https://bucket.test/{}?{}", segments.join("/"), pairs.join("&"));
        let body = match service {
            "s3" if linked => SignableBody::UnsignedPayload,
            _ => SignableBody::Bytes(&body),
        };
        let fields = [("x-amz-meta-note", &*note), ("content-type", "text/plain")];
        let sent = Sent { method: "PUT", uri: &uri, fields: &fields, body, service, linked };
        // The machine's clock may be years late.
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000 + skew);
        let (_, mut head) = by_aws(&sent, settings(service, linked), (EXAMPLE, None), late);
        let token = has_token.then_some(SESSION);
        let secrets = session(EXAMPLE, OTHER, token);
        let bytes = match &sent.body { SignableBody::Bytes(bytes) => *bytes, _ => b"" };
        again(&secrets, &mut head, ("bucket.test", TODAY), bytes).unwrap();
        prop_assert!(holds(&head, &sent, (OTHER, token)), "{:?}", head);
        let shown = visible(&head);
        prop_assert!(!shown.contains(EXAMPLE[0]));
    }
}

fn presented_by_the_agent() -> Parts {
    let sent = Sent {
        method: "POST",
        uri: "https://bucket.test/",
        fields: &[("content-type", "text/plain")],
        body: SignableBody::Bytes(b"Action=GetCallerIdentity"),
        service: "sts",
        linked: false,
    };
    by_aws(
        &sent,
        settings("sts", false),
        (EXAMPLE, None),
        SystemTime::UNIX_EPOCH,
    )
    .1
}

fn refusal(secrets: &SessionSecrets, mut head: Parts, body: &[u8]) -> String {
    let leak = again(secrets, &mut head, ("bucket.test", TODAY), body).unwrap_err();
    assert_eq!(leak.credential, "aws");
    for word in OTHER {
        assert!(!leak.sentence.contains(word), "{leak}");
    }
    leak.sentence
}

#[test]
fn what_the_holder_of_the_placeholders_did_not_sign_is_refused() {
    let secrets = session(EXAMPLE, OTHER, None);
    let body = b"Action=GetCallerIdentity";
    again(
        &secrets,
        &mut presented_by_the_agent(),
        ("bucket.test", TODAY),
        body,
    )
    .unwrap();
    let refused = refusal(&secrets, presented_by_the_agent(), b"Action=DeleteUser");
    assert!(refused.contains("not the one of this request"), "{refused}");
    let mut head = presented_by_the_agent();
    head.headers
        .insert("content-type", HeaderValue::from_static("text/html"));
    let refused = refusal(&secrets, head, body);
    assert!(refused.contains("not the one of this request"), "{refused}");
}

#[test]
fn a_placeholder_that_signs_nothing_goes_nowhere() {
    let secrets = session(EXAMPLE, OTHER, None);
    let mut head = presented_by_the_agent();
    let text = authorization(&head).replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256");
    head.headers.insert("authorization", text.parse().unwrap());
    let refused = refusal(&secrets, head, b"");
    assert!(refused.contains("only `AWS4-HMAC-SHA256`"), "{refused}");
    let mut head = presented_by_the_agent();
    head.headers.remove("authorization");
    head.headers
        .insert("x-amz-security-token", HeaderValue::from_static(EXAMPLE[0]));
    let refused = refusal(&secrets, head, b"");
    assert!(refused.contains("no signature is made with it"), "{refused}");
    let mut head = presented_by_the_agent();
    head.uri = format!("/?X-Amz-Credential={}%2Fx", EXAMPLE[0]).parse().unwrap();
    let refused = refusal(&secrets, head, b"");
    assert!(refused.contains("in its query and one in its head"), "{refused}");
}

#[test]
fn signatures_of_other_keys_pass_as_they_are() {
    let secrets = session(OTHER, IAM_EXAMPLE, None);
    let mut head = presented_by_the_agent();
    let before = visible(&head);
    again(&secrets, &mut head, ("bucket.test", TODAY), b"").unwrap();
    assert_eq!(visible(&head), before);
}
