//! What stands before every page: host and origin checks (rebinding, cross-site requests), log-in, headers.
use super::{ApiError, App, pages};
use crate::people::Identity;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

/// Nothing from elsewhere, nothing inline, in no frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Sets the headers that every answer has.
pub(super) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(CONTENT_SECURITY_POLICY),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        "cross-origin-opener-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refuses hosts that are not this machine, and requests that another site's page made.
pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    let checked = check_host(request.headers(), request.uri())
        .and_then(|host| check_site(request.method(), request.uri(), request.headers(), &host));
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Lets in who has a cookie; sends others to the log-in page (pages) or refuses them (API).
pub(super) async fn log_in(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if pages::is_public(path) || path == "/healthz" {
        return next.run(request).await;
    }
    let cookie = cookie(request.headers(), &cookie_name(&app.address));
    let found = cookie.and_then(|value| app.people.by_cookie(value, jiff::Timestamp::now()));
    match found {
        Some(identity) => {
            request.extensions_mut().insert::<Identity>(identity);
            next.run(request).await
        }
        None if path.starts_with("/api/") => ApiError::new(
            StatusCode::UNAUTHORIZED,
            "log in first: open the address that `sallyport login` prints",
        )
        .into_response(),
        None => pages::please_log_in(),
    }
}

/// The cookie's name has the port in it, since browsers share a host's cookies between ports.
pub(super) fn cookie_name(address: &str) -> String {
    let port = address.rsplit(':').next().unwrap_or_default();
    format!("sallyport_{port}")
}

/// The value of a cookie (RFC 6265 section 5.4).
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// The host must be a name of this machine that no foreign DNS answer can stand for.
fn check_host(headers: &HeaderMap, uri: &Uri) -> Result<String, ApiError> {
    let named = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => headers.get(header::HOST).and_then(|value| value.to_str().ok()),
    };
    let Some(named) = named else {
        return Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "the request names no host",
        ));
    };
    let ours = url::Url::parse(&format!("http://{named}/")).is_ok_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    });
    if !ours {
        let detail = format!(
            "`{}` is not a name of this page; use localhost",
            named.escape_debug()
        );
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    Ok(named.to_owned())
}

fn check_site(method: &Method, uri: &Uri, headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let foreign_origin = text("origin").is_some_and(|origin| origin != format!("http://{host}"));
    let foreign_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    let data = uri.path().starts_with("/api/");
    if foreign_origin || (foreign_site && (changes || data)) {
        let detail = "this request comes from another site's page; open the page itself";
        return Err(ApiError::new(StatusCode::FORBIDDEN, detail));
    }
    Ok(())
}
