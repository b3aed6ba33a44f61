//! The client of one exchange, as far as it decides in which words it is told of a refusal.
use super::grpc;
use super::refusal::Problem;
use crate::git::push::Push;
use crate::git::report;
use crate::payload::Body;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};

/// What a client asked with.
#[derive(Debug)]
pub struct Client {
    method: Method,
    headers: HeaderMap,
    push: Option<Push>,
}

impl Client {
    /// The one who sent this.
    pub fn of<B>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            headers: request.headers().clone(),
            push: None,
        }
    }

    /// Its request turned out to be this push.
    pub fn pushes(&mut self, push: Push) {
        self.push = Some(push);
    }

    /// The push that its request is, as far as that was looked at.
    pub fn pushed(&self) -> Option<&Push> {
        self.push.as_ref()
    }

    /// Whether it takes an answer only when it has sent everything: curl, which carries git, waits for ever for its turn to
    /// send when a push is answered with 200 before its end.
    pub fn sends_to_the_end(&self) -> bool {
        self.push.is_some()
    }

    /// Whether its request may change something upstream.
    pub fn writes(&self) -> bool {
        matches!(
            self.method,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE
        )
    }

    /// The answer that it can read.
    pub fn told(&self, problem: &Problem) -> Response<Body> {
        if grpc::is_spoken(&self.headers) {
            let mut answer = problem.answer((StatusCode::OK, grpc::MEDIA_TYPE), Bytes::new());
            let headers = answer.headers_mut();
            headers.remove(CONTENT_LENGTH);
            if let Some(kind) = self.headers.get(CONTENT_TYPE) {
                headers.insert(CONTENT_TYPE, kind.clone());
            }
            headers.extend(grpc::fields(problem));
            return answer;
        }
        match self.report(problem) {
            Some(report) => problem.answer((StatusCode::OK, report::RESULT), report.into()),
            None => problem.respond(&self.method, &self.headers),
        }
    }

    /// git prints nothing of a failed answer to a push, but all of a report.
    fn report(&self, problem: &Problem) -> Option<Vec<u8>> {
        let push = self
            .push
            .as_ref()
            .filter(|_| problem.status == StatusCode::FORBIDDEN)?;
        let what = match &problem.refusal {
            Some(refusal) => format!("{} (rule `{}`)", refusal.reason.text, refusal.reason.rule),
            None => problem.detail.clone(),
        };
        let reason = format!("{what} (decision {})", problem.id);
        let lines = [problem.detail.clone(), format!("decision {}", problem.id)];
        report::refused(push, &reason, &lines)
    }
}
