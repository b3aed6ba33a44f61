//! `Via`: every message that passes names this gateway, so that one which comes back to it is known (RFC 9110 section 7.6.3).
use aws_lc_rs::rand;
use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};
use std::fmt;

/// The name by which this gateway's process knows its own messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pseudonym(String);

impl Pseudonym {
    /// A random one: it tells nobody which machine or company this is. The error is the system's lack of randomness.
    pub fn random() -> Result<Self, std::io::Error> {
        let mut bytes = [0; 6];
        rand::fill(&mut bytes).map_err(|_| std::io::Error::other("no random bytes can be had"))?;
        let tail: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("sallyport-{tail}")))
    }

    /// Whether a message has been here.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|hop| hop.trim_ascii().split(|byte| *byte == b' ').nth(1))
            .any(|by| by == self.0.as_bytes())
    }

    /// Puts this gateway behind the hops that a message names, with the version in which it came.
    pub fn add_to(&self, headers: &mut HeaderMap, came: Version) -> Result<(), http::Error> {
        headers.append(VIA, HeaderValue::try_from(format!("{} {self}", number(came)))?);
        Ok(())
    }
}

impl fmt::Display for Pseudonym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn number(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_passed_is_known_again_among_other_hops() {
        let (own, other) = (Pseudonym::random().unwrap(), Pseudonym::random().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert(VIA, HeaderValue::from_static("1.0 fred, 1.1 p.example (Apache)"));
        assert!(!own.is_in(&headers));
        own.add_to(&mut headers, Version::HTTP_2).unwrap();
        assert!(own.is_in(&headers) && !other.is_in(&headers));
        let joined = format!("1.1 a, 2 {own} (comment), 1.1 b");
        headers.clear();
        headers.insert(VIA, HeaderValue::try_from(joined).unwrap());
        assert!(own.is_in(&headers));
    }
}
