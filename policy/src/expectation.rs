//! Running a policy's own `tests`.
use crate::document::TestPart;
use crate::{Moment, Overlay, Policy, Problem, Request, SshRequest, Verdict};

/// What came of a policy's own tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReport {
    /// How many there are.
    pub total: usize,
    /// One problem for each that failed, at its position.
    pub failures: Vec<Problem>,
}

impl Policy {
    /// Runs the `tests` of the policy's first file, without grants.
    pub fn run_tests(&self) -> TestReport {
        let failures = self
            .tests
            .iter()
            .filter_map(|test| self.run_test(test).err())
            .collect();
        TestReport {
            total: self.tests.len(),
            failures,
        }
    }

    fn run_test(&self, test: &TestPart) -> Result<(), Problem> {
        let text = match test.connect {
            true => format!("connect {}", test.request.value),
            false => test.request.value.clone(),
        };
        let expected = test.expect.value.as_str();
        let request = match Request::parse(&text) {
            Ok(_) if expected == "malformed" => {
                return Err(test
                    .request
                    .at
                    .error(format!("`{text}` was expected to be malformed, but is not")));
            }
            Ok(request) => with_details(request, test)?,
            Err(_) if expected == "malformed" => return Ok(()),
            Err(fault) => return Err(test.request.at.error(format!("`{text}` is malformed: {fault}"))),
        };
        let decision = self.decide(&request, &test.who, &Overlay::default(), test.at);
        let verdict = Verdict::of(decision, &request);
        let rule = verdict.reason.as_ref().map(|reason| reason.rule.as_str());
        let wanted_rule = test.rule.as_ref().map(|rule| rule.value.as_str());
        if verdict.decision == expected && (wanted_rule.is_none() || wanted_rule == rule) {
            return Ok(());
        }
        let by = |rule: Option<&str>| rule.map(|rule| format!(" by rule `{rule}`")).unwrap_or_default();
        let message = format!(
            "`{text}` was expected to give `{expected}`{}, but gives `{}`{}",
            by(wanted_rule),
            verdict.decision,
            by(rule)
        );
        let problem = test.request.at.error(message);
        Err(match verdict.reason {
            Some(reason) => problem.hint(reason.text),
            None => problem,
        })
    }
}

/// With the header fields and refs that the test tells.
fn with_details(mut request: Request, test: &TestPart) -> Result<Request, Problem> {
    let (headers, push) = (&test.headers, &test.push);
    match &mut request.moment {
        Moment::Http(http) => {
            http.headers.clone_from(headers);
            http.pushed.clone_from(push);
        }
        Moment::Ssh(SshRequest { git: Some(git), .. }) if headers.is_empty() => git.pushed.clone_from(push),
        _ if headers.is_empty() && push.is_none() => {}
        _ => {
            let problem = test
                .request
                .at
                .error("`headers` and `push` have no meaning for this request");
            return Err(problem.hint("`headers` belong to HTTP, `push` to git over HTTP or ssh"));
        }
    }
    Ok(request)
}
