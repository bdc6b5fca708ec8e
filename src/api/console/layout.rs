//! The frame of every console page, the headers of every console response, and error pages.
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, REFERRER_POLICY,
};
use actix_web::{HttpRequest, HttpResponse};
use maud::{DOCTYPE, Markup, html};

use crate::console::form;
use crate::console::login_form::login_form;
use crate::error::{ErrorCode, Problem};
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::response::{RouteResult, with_type};

const HTML: &str = "text/html; charset=utf-8";
/// No foreign and no inline resources; no framing, because the pages have buttons that change state.
const CONTENT_POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";
const TABS: [(&str, &str); 5] = [
    ("/console", "Overview"),
    ("/console/actors", "Actors"),
    ("/console/outbox", "Outbox"),
    ("/console/dlt", "Dead letters"),
    ("/console/events", "Events"),
];

/// A page of the console.
pub(crate) struct Page<'a> {
    /// The tab that is marked as current.
    pub(crate) tab: &'static str,
    pub(crate) title: &'a str,
    /// Whether the script reloads the page every two seconds. False for pages that count rows or read a topic.
    pub(crate) refreshes: bool,
    pub(crate) main: Markup,
    /// The path of the same data in the HTTP API, for `curl`.
    pub(crate) path: &'a str,
    /// The command that prints the same data; empty if there is none.
    pub(crate) command: &'a str,
}

/// 200 with a page.
pub(crate) fn show(context: &RequestContext, page: &Page<'_>) -> RouteResult {
    let note = if is_refresh(context) { None } else { take_note(context) };
    let options = &context.state.options;
    let body = html! {
        header {
            p class="brand" { "posthaste" small { " region " (options.region) " · instance " (options.instance) } }
            (tabs(page.tab))
            (account(context)?)
        }
        p id="stale" class="warning" role="alert" hidden { "The service does not respond. This page shows old data." }
        @if let Some(note) = note { p class="note" role="status" { (note) } }
        main id="main" tabindex="-1" data-refresh[page.refreshes] { h1 { (page.title) } (page.main) }
        footer {
            h2 { "The same data from a shell" }
            pre { code { "curl -s '" (origin(&context.request)) (page.path) "' -H \"Authorization: Bearer $TOKEN\"" } }
            @if !page.command.is_empty() { pre { code { (page.command) } } }
        }
    };
    Ok(with_type(StatusCode::OK, HTML, frame(page.title, &body).into_string()))
}

/// 200 with a page for visitors that are not logged in.
pub(crate) fn show_bare(title: &str, main: &Markup) -> HttpResponse {
    with_type(StatusCode::OK, HTML, bare(title, main))
}

/// An error response as a page, with the status and headers of `response`.
pub(crate) fn error_page(request: &HttpRequest, problem: &Problem, response: HttpResponse) -> HttpResponse {
    let title = problem.code.title();
    let main = html! {
        p class="warning" role="alert" { (problem.message()) }
        @for error in problem.errors() { p { code { (error.field) } " " (error.message) } }
        @if problem.code == ErrorCode::Unauthorized { (login_form(request)) }
        p { a href="/console" { "Back to the overview" } }
    };
    let mut response = response.set_body(BoxBody::new(bare(title, &main)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    response
}

/// Adds the headers of every console response.
pub(crate) fn add_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// 303 to another page, the response to a successful form.
pub(crate) fn see_other(to: &str) -> HttpResponse {
    // Callers pass only console paths that are percent-encoded or checked to be ASCII.
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/console"));
    HttpResponse::SeeOther().insert_header((LOCATION, to)).finish()
}

/// 303 to a page that shows this note once.
pub(crate) fn see_other_with_note(context: &RequestContext, to: &str, note: String) -> HttpResponse {
    if let Some(session) = &context.session {
        context.state.sessions.leave_note(session, note);
    }
    see_other(to)
}

fn bare(title: &str, main: &Markup) -> String {
    let body = html! {
        header { p class="brand" { "posthaste" } }
        main id="main" tabindex="-1" { h1 { (title) } (main) }
    };
    frame(title, &body).into_string()
}

fn frame(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · posthaste" }
                link rel="stylesheet" href="/console/console.css";
                script type="module" src="/console/console.js" {}
            }
            body { a class="skip" href="#main" { "Skip to content" } (body) }
        }
    }
}

fn tabs(current: &str) -> Markup {
    html! {
        nav aria-label="Console" {
            ul { @for (href, name) in TABS { li { a href=(href) aria-current=[(name == current).then_some("page")] { (name) } } } }
        }
    }
}

fn account(context: &RequestContext) -> Result<Markup, Problem> {
    let subject = context.identity()?.subject.as_str();
    Ok(html! {
        div class="who" {
            button type="button" id="pause" hidden aria-pressed="false" { "Pause updates" }
            span { "Logged in as " strong { (subject) } }
            @if context.session.is_some() {
                form method="post" action="/console/logout" { (form::csrf_field(context)) button { "Log out" } }
            }
        }
    })
}

/// Whether the script requested the page in the background; such a response must not consume the note.
fn is_refresh(context: &RequestContext) -> bool {
    context.headers().contains_key("x-refresh")
}

fn take_note(context: &RequestContext) -> Option<String> {
    context.state.sessions.take_note(context.session.as_ref()?)
}

/// The origin from the `Host` header, or the default one if the header contains characters that no host has.
fn origin(request: &HttpRequest) -> String {
    let legal = |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    format!("http://{}", single_value(request.headers(), "host").filter(legal).unwrap_or("localhost:8080"))
}
