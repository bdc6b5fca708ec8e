//! Dead letters back to their topic: counted first, then sent with a reason, and no more than were counted.
use app::operators::dead_letters::ReplayReport;
use maud::{Markup, html};

use super::form::{self, carried};
use super::letters::{Asked, asked, behind, fields, options};
use super::links::{command, link};
use super::page::{self, Page};
use super::redrive::counted;
use crate::admin::asked::LIMIT_MAX;
use crate::admin::dlt;
use crate::call::Call;
use crate::route::Answer;

pub(super) async fn count(call: Call) -> Answer {
    let query = call.query();
    let (asked, filter) = (asked(&query)?, dlt::filter(&query)?);
    let audit = dlt::audit(&call, String::new())?;
    let sent = dlt::letters(&call)?.redrive(&filter, LIMIT_MAX, false, &audit).await?;
    let main = html! {
        form method="get" action="/console/dlt/redrive" class="filter" { (fields(&asked)) button { "Count" } }
        (confirm(&call, &asked, &sent))
        p { a href="/console/dlt" { "To the dead letters" } }
    };
    let command = command("posthaste dlt redrive --dry-run", &options(&behind(&asked, asked[5].1)));
    let path = link("/admin/dlt", &asked);
    page::show(
        &call,
        &Page { tab: "Dead letters", fresh: false, title: "Send letters back", main, path: &path, command: &command },
    )
}

fn confirm(call: &Call, asked: &Asked<'_>, sent: &ReplayReport) -> Markup {
    html! {
        p class="verdict" {
            @if sent.next.is_some() { "At least " }
            strong { (sent.matched) } " letters match that did not go back before. Nothing was changed."
        }
        @if sent.matched > 0 {
            form method="post" action="/console/dlt/redrive" class="act" {
                (form::mark(call)) (carried(asked)) input type="hidden" name="matched" value=(sent.matched);
                (form::reason_field()) " " button { "Send these back" }
            }
        }
    }
}

pub(super) async fn redrive(call: Call) -> Answer {
    let form = form::read(&call.body)?;
    let (asked, filter) = (asked(&form)?, dlt::filter(&form)?);
    let (why, limit) = (form::reason(&form)?, counted(&form)?);
    let audit = dlt::audit(&call, why)?;
    let sent = dlt::letters(&call)?.redrive(&filter, limit, true, &audit).await?;
    if sent.redriven > 0 {
        dlt::tell(&audit, sent.redriven);
    }
    form::tell(&audit.operator, "send back", &link("dead letters", &asked), &audit.reason);
    let note = format!("{} letters went back to their topic.", sent.redriven);
    // What is left goes on where this ended, so that letters that died again meanwhile are not chased.
    let next = sent.next.filter(|_| sent.redriven > 0).map(|next| next.to_string());
    let to =
        next.map_or_else(|| "/console/dlt".to_owned(), |next| link("/console/dlt/redrive", &behind(&asked, &next)));
    Ok(page::see_with_note(&call, &to, note))
}
