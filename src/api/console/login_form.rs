//! The log-in form, which the log-in page and the 401 page contain.
use actix_web::HttpRequest;
use maud::{Markup, html};

use crate::console::links::{is_console_page, link};
use crate::request::query::Query;

/// The form. It leads to the page that the request was redirected from.
pub(crate) fn login_form(request: &HttpRequest) -> Markup {
    html! {
        form method="post" action=(link("/console/login", &[("next", &next_page(request))])) class="stack" {
            label { "Token" input type="password" name="token" required autocomplete="off" spellcheck="false"; }
            button { "Log in" }
        }
    }
}

/// The page to show after the log-in: the parameter `next` if it is a console page, else the overview.
pub(crate) fn next_page(request: &HttpRequest) -> String {
    let query = Query::parse(request.query_string());
    let next = query.non_empty("next").ok().flatten().filter(|next| is_console_page(next));
    next.unwrap_or("/console").to_owned()
}
