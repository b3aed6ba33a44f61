//! A refused push, told in the report that git prints (gitprotocol-pack, "Report Status"; gitprotocol-common, side bands). Pure.
use super::pkt_line;
use super::push::Push;

/// Longest reason for one ref and longest line beside it, in characters.
const LONGEST: usize = 1000;
/// The side band of the report itself.
const REPORT: [u8; 1] = [1];
/// The side band of what git prints as `remote: ...`
const PROGRESS: [u8; 1] = [2];

/// The media type of such an answer.
pub const RESULT: &str = "application/x-git-receive-pack-result";

/// The answer to a push of which nothing was sent on: every ref is refused with `reason`, and `lines` stand beside it where
/// the client shows such. Nothing where the client did not ask for a report.
pub fn refused(push: &Push, reason: &str, lines: &[String]) -> Option<Vec<u8>> {
    if !push.asks("report-status") && !push.asks("report-status-v2") {
        return None;
    }
    let mut report = Vec::new();
    pkt_line::write(b"", b"unpack ok\n", &mut report);
    let reason = one_line(reason);
    for (name, _) in &push.changes {
        pkt_line::write(b"", format!("ng {name} {reason}\n").as_bytes(), &mut report);
    }
    pkt_line::flush(&mut report);
    if !push.asks("side-band-64k") {
        return Some(report);
    }
    let mut answer = Vec::new();
    for line in lines {
        let line = format!("sallyport: {}\n", one_line(line));
        pkt_line::write(&PROGRESS, line.as_bytes(), &mut answer);
    }
    pkt_line::write(&REPORT, &report, &mut answer);
    pkt_line::flush(&mut answer);
    Some(answer)
}

fn one_line(text: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(LONGEST).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::push::Change;

    fn push(capabilities: &[&str]) -> Push {
        Push {
            changes: vec![
                ("refs/heads/a".into(), Change::Created),
                ("refs/heads/b".into(), Change::Deleted),
            ],
            capabilities: capabilities.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn each_ref_is_refused_on_a_line_of_its_own() {
        let told = refused(&push(&["report-status"]), "no\nok refs/heads/b", &[]).unwrap();
        let expected = "000eunpack ok\n0027ng refs/heads/a no ok refs/heads/b\n0027ng refs/heads/b no ok refs/heads/b\n0000";
        assert_eq!(String::from_utf8(told).unwrap(), expected);
    }

    #[test]
    fn side_bands_carry_the_report_and_what_stands_beside_it() {
        let lines = ["because".to_owned()];
        let told = refused(&push(&["report-status-v2", "side-band-64k"]), "no", &lines).unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with("0018\u{2}sallyport: because\n"), "{told:?}");
        assert!(told.contains("\u{1}000eunpack ok\n"), "{told:?}");
        assert!(told.ends_with("00000000"), "{told:?}");
    }

    #[test]
    fn who_asks_for_no_report_gets_none() {
        assert_eq!(refused(&push(&["side-band-64k"]), "no", &[]), None);
    }
}
