//! Pages and assets, embedded in the program, and the log-in.
use super::{ApiError, App, guard};
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, header};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "src/web/assets"]
struct Assets;

/// Routes of pages; `/assets/` and `/login` need no log-in.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/", get(|| page("runs", "Runs")))
        .route("/new", get(|| page("new", "New run")))
        .route("/runs/{id}", get(|| page("run", "Run")))
        .route("/log", get(|| page("log", "Network log")))
        .route("/policies", get(|| page("policies", "Policies")))
        .route("/login", get(log_in))
        .route("/logout", get(log_out))
        .route(
            "/favicon.ico",
            get(|headers: HeaderMap| file("icon.svg".to_owned(), headers)),
        )
        .route(
            "/assets/{*path}",
            get(|Path(path): Path<String>, headers: HeaderMap| file(path, headers)),
        )
}

/// Whether a path may be seen without log-in.
pub(super) fn is_public(path: &str) -> bool {
    path == "/login" || path == "/favicon.ico" || path.starts_with("/assets/")
}

/// The page for those who have no cookie.
pub(super) fn please_log_in() -> Response {
    with_status(StatusCode::UNAUTHORIZED, "login.html")
}

/// A page's own content within what all pages have.
async fn page(name: &'static str, title: &'static str) -> Response {
    let text = |name: &str| {
        let asset = Assets::get(name)?;
        String::from_utf8(asset.data.into_owned()).ok()
    };
    let Some((frame, main)) = text("frame.html").zip(text(&format!("{name}.html"))) else {
        return ApiError::new(StatusCode::NOT_FOUND, format!("there is no page `{name}`")).into_response();
    };
    let whole = frame
        .replace("{title}", title)
        .replace("{script}", &format!("{name}.js"))
        .replace("{main}", &main);
    Html(whole).into_response()
}

fn with_status(status: StatusCode, name: &str) -> Response {
    match Assets::get(name) {
        Some(asset) => (status, Html(asset.data)).into_response(),
        None => ApiError::new(StatusCode::NOT_FOUND, format!("there is no page `{name}`")).into_response(),
    }
}

/// An asset with a validator (RFC 9110 section 8.8.3), so that browsers ask but do not load it again.
async fn file(path: String, request: HeaderMap) -> Response {
    let Some(asset) = Assets::get(&path) else {
        let detail = format!("there is no asset `{}`", path.escape_debug());
        return ApiError::new(StatusCode::NOT_FOUND, detail).into_response();
    };
    let hash = asset.metadata.sha256_hash();
    let tag = format!(
        "\"{}\"",
        hash.iter()
            .take(12)
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    );
    let known = request
        .get(header::IF_NONE_MATCH)
        .is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let headers = [
        (header::CONTENT_TYPE, asset.metadata.mimetype().to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag),
    ];
    if known {
        (StatusCode::NOT_MODIFIED, headers).into_response()
    } else {
        (headers, asset.data).into_response()
    }
}

#[derive(serde::Deserialize)]
struct LogIn {
    token: Option<String>,
}

/// Takes a one-time token, sets the cookie and leads on by a page of our own: after a redirect from a foreign
/// page the browser would not send a `SameSite=Strict` cookie.
async fn log_in(State(app): State<App>, Query(query): Query<LogIn>) -> Result<Response, ApiError> {
    let now = jiff::Timestamp::now();
    let cookie = match query.token {
        Some(token) => app.people.log_in(&token, now)?,
        None => None,
    };
    let Some(cookie) = cookie else {
        return Ok(please_log_in());
    };
    let name = guard::cookie_name(&app.address);
    let cookie = format!("{name}={cookie}; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
    Ok((
        [(header::SET_COOKIE, cookie)],
        with_status(StatusCode::OK, "welcome.html"),
    )
        .into_response())
}

async fn log_out(State(app): State<App>, headers: HeaderMap) -> Result<Response, ApiError> {
    let name = guard::cookie_name(&app.address);
    if let Some(value) = guard::cookie(&headers, &name) {
        app.people.log_out(value, jiff::Timestamp::now())?;
    }
    let cookie = format!("{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    Ok(([(header::SET_COOKIE, cookie)], please_log_in()).into_response())
}
