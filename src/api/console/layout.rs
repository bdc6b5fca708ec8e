//! The frame of every console page, the headers of every console response, and error pages.
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, REFERRER_POLICY, SET_COOKIE,
};
use actix_web::{HttpRequest, HttpResponse};
use maud::{DOCTYPE, Markup, html};

use crate::console::login_form::login_form;
use crate::console::session::ConsoleSession;
use crate::console::{access, form};
use crate::error::{ErrorCode, Problem};
use crate::request::context::RequestContext;
use crate::request::headers::single_value;
use crate::request::response::{RouteResult, see_other, with_type};
use crate::state::HttpState;

const HTML: &str = "text/html; charset=utf-8";
/// No foreign and no inline resources; no framing, because the pages have buttons that change state.
const CONTENT_POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";
/// Times between two updates that an operator can choose.
const REFRESH_SECONDS: [u32; 3] = [1, 2, 5];
const TABS: [(&str, &str); 7] = [
    ("/console", "Overview"),
    ("/console/actors", "Actors"),
    ("/console/outbox", "Outbox"),
    ("/console/dlt", "Dead letters"),
    ("/console/webhooks", "Webhooks"),
    ("/console/events", "Events"),
    ("/console/audit", "Audit"),
];

/// A page of the console.
pub(crate) struct Page<'a> {
    /// The tab that is marked as current.
    pub(crate) tab: &'static str,
    pub(crate) title: &'a str,
    /// Whether the script reloads the page, every two seconds unless the operator chose another time. False for pages that count rows or read a topic.
    pub(crate) refreshes: bool,
    pub(crate) main: Markup,
    /// The path of the same data in the HTTP API, for `curl`.
    pub(crate) path: &'a str,
    /// The command that prints the same data; empty if there is none.
    pub(crate) command: &'a str,
}

/// 200 with a page.
pub(crate) fn show(context: &RequestContext, page: &Page<'_>) -> RouteResult {
    respond(context, StatusCode::OK, page)
}

/// A page with another status than 200.
pub(crate) fn show_with_status(context: &RequestContext, status: StatusCode, page: &Page<'_>) -> RouteResult {
    respond(context, status, page)
}

/// A page whose form was refused: the same page with the status of the problem, which its main part names.
pub(crate) fn show_refused(context: &RequestContext, page: &Page<'_>, problem: &Problem) -> RouteResult {
    respond(context, problem.code.status(), page)
}

/// The error of a request, above a form that keeps the values that were typed.
pub(crate) fn problem_notice(problem: &Problem) -> Markup {
    html! {
        div class="warning" role="alert" {
            p { strong { (problem.message()) } }
            @for error in problem.errors() { p { code { (error.field) } " " (error.message) } }
        }
    }
}

fn respond(context: &RequestContext, status: StatusCode, page: &Page<'_>) -> RouteResult {
    let flash = if is_refresh(context) { None } else { take_flash(context) };
    let state = &context.state;
    let csrf = form::csrf_field(context);
    let session = context.session.as_ref().map(|_| &csrf);
    let body = html! {
        (header(state, page.tab, context.identity()?.subject.as_str(), session))
        p id="stale" class="warning" role="alert" hidden { "The service does not respond. This page shows old data." }
        @if let Some(flash) = flash { p class="note" role="status" { (flash) } }
        main id="main" tabindex="-1" data-refresh[page.refreshes] { h1 { (page.title) } (page.main) }
        footer {
            details {
                summary { "The same data from a shell" }
                pre { code { "curl -s '" (origin(context)) (page.path) "' -H \"Authorization: Bearer $TOKEN\"" } }
                @if !page.command.is_empty() { pre { code { (page.command) } } }
            }
        }
    };
    let mut response = with_type(status, HTML, frame(page.title, &body).into_string());
    if let Some(cookie) = context.session.as_ref().and_then(|session| access::due_ticket_cookie(context, session)) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// 200 with a page for visitors that are not logged in.
pub(crate) fn show_bare(title: &str, main: &Markup) -> HttpResponse {
    with_type(StatusCode::OK, HTML, bare(title, main))
}

/// An error response as a page, with the status and headers of `response`. Operators that are logged in keep the frame.
pub(crate) fn error_page(
    state: &HttpState,
    request: &HttpRequest,
    problem: &Problem,
    response: HttpResponse,
) -> HttpResponse {
    let title = problem.code.title();
    let main = html! {
        (problem_notice(problem))
        @if problem.code == ErrorCode::Unauthorized { (login_form(request)) }
        p { a href="/console" { "Back to the overview" } }
    };
    let session = access::session(state, request, state.operations.now());
    let text = match session.filter(|_| problem.code != ErrorCode::Unauthorized) {
        Some(session) => framed_error(state, request, &session, title, &main),
        None => bare(title, &main),
    };
    let mut response = response.set_body(BoxBody::new(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    response
}

fn framed_error(
    state: &HttpState,
    request: &HttpRequest,
    session: &ConsoleSession,
    title: &str,
    main: &Markup,
) -> String {
    let path = request.path();
    let tab = TABS.iter().rev().find(|(href, _)| path.starts_with(href)).map_or("", |(_, name)| *name);
    let csrf = form::session_csrf_field(session);
    let body = html! {
        (header(state, tab, session.identity.subject.as_str(), Some(&csrf)))
        main id="main" tabindex="-1" { h1 { (title) } (main) }
    };
    frame(title, &body).into_string()
}

/// Adds the headers of every console response.
pub(crate) fn add_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// 303 to a page that shows this flash message once.
pub(crate) fn see_other_with_flash(context: &RequestContext, to: &str, flash: String) -> HttpResponse {
    if let Some(session) = &context.session {
        context.state.sessions.set_flash(session, flash);
    }
    see_other(to)
}

fn bare(title: &str, main: &Markup) -> String {
    let body = html! {
        header { (brand()) }
        main id="main" class="narrow" tabindex="-1" { h1 { (title) } (main) }
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
                link rel="icon" type="image/svg+xml" href="/console/favicon.svg";
                link rel="stylesheet" href="/console/console.css";
                script src="/console/theme.js" {}
                script type="module" src="/console/console.js" {}
            }
            body { a class="skip" href="#main" { "Skip to content" } (body) }
        }
    }
}

/// Logo, tabs and account. `csrf` is the hidden field of the session's forms; none for a request with a bearer token.
fn header(state: &HttpState, tab: &str, subject: &str, csrf: Option<&Markup>) -> Markup {
    let options = &state.options;
    html! {
        header {
            (brand())
            nav aria-label="Console" {
                ul { @for (href, name) in TABS { li { a href=(href) aria-current=[(name == tab).then_some("page")] { (name) } } } }
            }
            div class="who" {
                span id="live" class="live" role="status" {}
                button type="button" id="theme" hidden { "Colours: auto" }
                select id="period" hidden aria-label="Time between updates" {
                    @for seconds in REFRESH_SECONDS { option value=(seconds * 1_000) selected[seconds == 2] { "every " (seconds) " s" } }
                }
                button type="button" id="pause" hidden aria-pressed="false" { "Pause updates" }
                span class="place" { "region " (options.region) " · instance " (options.instance) }
                span { "Logged in as " strong { (subject) } }
                @if let Some(csrf) = csrf { form method="post" action="/console/logout" { (csrf) button { "Log out" } } }
            }
        }
    }
}

/// The logo, a post horn, and the name.
fn brand() -> Markup {
    html! {
        a class="brand" href="/console" {
            svg class="logo" viewBox="0 0 32 32" aria-hidden="true" {
                rect class="logo-ground" width="32" height="32" rx="8" {}
                path class="logo-horn" d="M5 12h9a6 6 0 1 1-6 6v-1" {}
                path class="logo-horn" d="M14 12h4l8-5v15l-6-4" {}
            }
            "posthaste"
        }
    }
}

/// Whether the script requested the page in the background; such a response must not consume the flash message.
fn is_refresh(context: &RequestContext) -> bool {
    context.headers().contains_key("x-refresh")
}

fn take_flash(context: &RequestContext) -> Option<String> {
    context.state.sessions.take_flash(context.session.as_ref()?)
}

/// The origin from the `Host` header, or the default one if the header contains characters that no host has.
fn origin(context: &RequestContext) -> String {
    let request = &context.request;
    let scheme = if context.state.options.trusted_proxies.is_https(request) { "https" } else { "http" };
    let legal = |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    format!("{scheme}://{}", single_value(request.headers(), "host").filter(legal).unwrap_or("localhost:8080"))
}
