//! Running a policy's own `tests`, and telling which rules they exercise.
use crate::check;
use crate::diagnostic::{At, is_broken};
use crate::document::{Document, Effect, TestPart};
use crate::rule::Fit;
use crate::{Code, Moment, Overlay, Policy, PolicyText, Problem, Request, SshRequest, Verdict};
use serde::Serialize;

/// What came of a policy's own tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReport {
    /// How many there are.
    pub total: usize,
    /// One problem for each that failed, at its position.
    pub failures: Vec<Problem>,
    /// Every rule, in the policy's order.
    pub coverage: Vec<RuleCoverage>,
}

/// Whether the tests exercise a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleCoverage {
    /// Id.
    pub rule: String,
    /// File where it stands.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// It stands in a file of the policy's author, not in a preset.
    pub own: bool,
    /// Tests that it decided.
    pub decided: usize,
    /// Tests that another rule decided and it allowed as well, or would have refused if it were enforced.
    pub took_part: usize,
}

impl RuleCoverage {
    /// Whether some test says something about it.
    pub fn exercised(&self) -> bool {
        self.decided + self.took_part > 0
    }
}

impl Policy {
    /// Runs the `tests` of the policy's first file, without grants.
    pub fn run_tests(&self) -> TestReport {
        self.run_all(self.tests.iter())
    }

    /// The same with further files that hold `tests` and nothing else; the error is what is wrong with those.
    pub fn run_tests_with(&self, beside: &[PolicyText]) -> Result<TestReport, Vec<Problem>> {
        let mut problems = Vec::new();
        let documents: Vec<Document> = beside
            .iter()
            .map(|text| Document::read(text, &mut problems))
            .collect();
        check::only_tests(&documents, &mut problems);
        check::tests(documents.iter(), &self.rules, &mut problems);
        if is_broken(&problems) {
            return Err(problems);
        }
        let further = documents.iter().flat_map(|document| &document.tests);
        Ok(self.run_all(self.tests.iter().chain(further)))
    }

    fn run_all<'t>(&self, tests: impl Iterator<Item = &'t TestPart>) -> TestReport {
        let uncovered = self.rules.iter().map(|rule| RuleCoverage {
            rule: rule.id.clone(),
            file: rule.at.file.to_string(),
            line: rule.at.line,
            column: rule.at.column,
            own: !rule.at.file.starts_with("preset:"),
            decided: 0,
            took_part: 0,
        });
        let mut report = TestReport {
            total: 0,
            failures: Vec::new(),
            coverage: uncovered.collect(),
        };
        for test in tests {
            report.total += 1;
            let result = self.run_test(test, &mut report.coverage);
            report.failures.extend(result.err());
        }
        report
    }

    fn run_test(&self, test: &TestPart, coverage: &mut [RuleCoverage]) -> Result<(), Problem> {
        let text = match test.connect {
            true => format!("connect {}", test.request.value),
            false => test.request.value.clone(),
        };
        let expected = test.expect.value.as_str();
        let request = match Request::parse(&text) {
            Ok(_) if expected == "malformed" => {
                let message = format!("`{text}` was expected to be malformed, but is not");
                return Err(failed(test, message));
            }
            Ok(request) => with_details(request, test)?,
            Err(_) if expected == "malformed" => return Ok(()),
            Err(fault) => return Err(failed(test, format!("`{text}` is malformed: {fault}"))),
        };
        let decision = self.decide(&request, &test.who, &Overlay::default(), test.at);
        let verdict = Verdict::of(decision, &request);
        let rule = verdict.reason.as_ref().map(|reason| reason.rule.as_str());
        self.cover(test, &request, rule, coverage);
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
        let problem = failed(test, message);
        Err(match verdict.reason {
            Some(reason) => problem.hint(reason.text),
            None => problem,
        })
    }

    /// Which rules this test says something about; `decided` is the one that gave the answer.
    fn cover(
        &self,
        test: &TestPart,
        request: &Request,
        decided: Option<&str>,
        coverage: &mut [RuleCoverage],
    ) {
        for (rule, covered) in self.rules.iter().zip(coverage) {
            if decided == Some(&rule.id) {
                covered.decided += 1;
            } else if (rule.effect == Effect::Allow || rule.observe)
                && rule.fit(request, &test.who, test.at) == Fit::Full
            {
                covered.took_part += 1;
            }
        }
    }
}

fn failed(test: &TestPart, message: String) -> Problem {
    let At { at, .. } = &test.request;
    at.error(message).code(Code::FailedTest)
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
