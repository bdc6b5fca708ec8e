//! The frame around every page, what every answer of the console carries, and pages for what was refused.
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, REFERRER_POLICY,
};
use actix_web::{HttpRequest, HttpResponse};
use maud::{DOCTYPE, Markup, html};

use super::{form, login};
use crate::call::{Call, typed};
use crate::context::only;
use crate::error::{Kind, Problem};
use crate::route::Answer;

const HTML: &str = "text/html; charset=utf-8";
/// Everything comes from here, nothing stands inline, and nobody frames a page with buttons that change something.
const POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";
const TABS: [(&str, &str); 5] = [
    ("/console", "Overview"),
    ("/console/actors", "Actors"),
    ("/console/outbox", "Outbox"),
    ("/console/dlt", "Dead letters"),
    ("/console/events", "Events"),
];

/// A page of the console.
pub(super) struct Page<'a> {
    /// The tab it belongs to.
    pub(super) tab: &'static str,
    pub(super) title: &'a str,
    /// Whether it is worth asking for again every two seconds: what counts or walks through a topic is not.
    pub(super) fresh: bool,
    pub(super) main: Markup,
    /// Where `curl` finds the same data.
    pub(super) path: &'a str,
    /// The command that prints the same data, where there is one.
    pub(super) command: &'a str,
}

/// 200 with a page.
pub(super) fn show(call: &Call, page: &Page<'_>) -> Answer {
    let note = if is_refresh(call) { None } else { note(call) };
    let options = &call.state.options;
    let body = html! {
        header {
            p class="brand" { "posthaste" small { " region " (options.region) " · instance " (options.instance) } }
            (tabs(page.tab))
            (who(call)?)
        }
        p id="stale" class="warning" role="alert" hidden { "The service does not answer: what stands here is old." }
        @if let Some(note) = note { p class="note" role="status" { (note) } }
        main id="main" tabindex="-1" data-refresh[page.fresh] { h1 { (page.title) } (page.main) }
        footer {
            h2 { "The same, elsewhere" }
            pre { code { "curl -s '" (origin(&call.request)) (page.path) "' -H \"Authorization: Bearer $TOKEN\"" } }
            @if !page.command.is_empty() { pre { code { (page.command) } } }
        }
    };
    Ok(typed(StatusCode::OK, HTML, frame(page.title, &body).into_string()))
}

/// A page for whoever is not logged in.
pub(super) fn bare(title: &str, main: &Markup) -> String {
    let body = html! {
        header { p class="brand" { "posthaste" } }
        main id="main" tabindex="-1" { h1 { (title) } (main) }
    };
    frame(title, &body).into_string()
}

/// 200 with such a page.
pub(super) fn show_bare(title: &str, main: &Markup) -> HttpResponse {
    typed(StatusCode::OK, HTML, bare(title, main))
}

/// What was refused, as a page: the problem's status and headers, and where to go on.
pub(crate) fn refusal(request: &HttpRequest, problem: &Problem, answer: HttpResponse) -> HttpResponse {
    let title = problem.kind.title();
    let main = html! {
        p class="warning" role="alert" { (problem.message()) }
        @for error in problem.errors() { p { code { (error.field) } " " (error.message) } }
        @if problem.kind == Kind::Unauthorized { (login::form(request)) }
        p { a href="/console" { "To the overview" } }
    };
    let mut answer = answer.set_body(BoxBody::new(bare(title, &main)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    answer
}

/// What every answer of the console carries.
pub(crate) fn dress(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The way to another page: what a form that was obeyed answers.
pub(crate) fn see_other(to: &str) -> HttpResponse {
    // Only our own addresses come here, percent-encoded or found plain.
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/console"));
    HttpResponse::SeeOther().insert_header((LOCATION, to)).finish()
}

/// The same, with a note on the page that comes.
pub(super) fn see_with_note(call: &Call, to: &str, note: String) -> HttpResponse {
    if let Some(session) = &call.session {
        call.state.sessions.leave_note(session, note);
    }
    see_other(to)
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

fn who(call: &Call) -> Result<Markup, Problem> {
    let subject = call.identity()?.subject.as_str();
    Ok(html! {
        div class="who" {
            button type="button" id="pause" hidden aria-pressed="false" { "Pause updates" }
            span { "You are " strong { (subject) } }
            @if call.session.is_some() {
                form method="post" action="/console/logout" { (form::mark(call)) button { "Log out" } }
            }
        }
    })
}

/// The script asks in the background; a note is for the page that its operator asked for.
fn is_refresh(call: &Call) -> bool {
    call.headers().contains_key("x-refresh")
}

fn note(call: &Call) -> Option<String> {
    call.state.sessions.take_note(call.session.as_ref()?)
}

/// Where the browser found us. What it says is shown back to it only when it can be nothing but an address.
fn origin(request: &HttpRequest) -> String {
    let legal = |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    format!("http://{}", only(request.headers(), "host").filter(legal).unwrap_or("localhost:8080"))
}
