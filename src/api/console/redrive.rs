//! Parked rows on their way again: counted first, then sent with a reason, and no more than were counted.
use app::port_types::RowFilter;
use maud::html;

use super::form::{self, carried};
use super::links::{command, link};
use super::page::{self, Page};
use crate::admin::asked::LIMIT_MAX;
use crate::admin::{dlt, outbox};
use crate::call::Call;
use crate::error::Problem;
use crate::query::Query;
use crate::route::Answer;

const FIELDS: [&str; 4] = ["key", "type", "failureType", "olderThan"];

pub(super) async fn count(call: Call) -> Answer {
    let query = call.query();
    let (filter, asked) = (filter(&query)?, form::asked(&query, FIELDS)?);
    let who = call.identity()?.subject.as_str();
    let matched = call.state.operations.redrive(&filter, LIMIT_MAX, false, who, "").await?;
    let [(_, key), (_, kind), (_, failure), (_, age)] = asked;
    let main = html! {
        form method="get" action="/console/outbox/redrive" class="filter" {
            (form::failed_fields(key, kind, failure, age))
            button { "Count" }
        }
        p class="verdict" { strong { (matched) } " parked rows match. Nothing was changed." }
        @if matched > 0 {
            form method="post" action="/console/outbox/redrive" class="act" {
                (form::mark(&call)) (carried(&asked)) input type="hidden" name="matched" value=(matched.min(LIMIT_MAX.into()));
                (form::reason_field()) " " button { "Redrive these rows" }
            }
        }
        p { a href="/console/outbox?status=PARKED" { "To the parked rows" } }
    };
    let options = [("key", key), ("type", kind), ("failure", failure), ("older-than", age)];
    let command = command("posthaste outbox redrive --dry-run", &options);
    let path = link("/admin/outbox", &[("status", "PARKED"), ("key", key), ("type", kind)]);
    page::show(
        &call,
        &Page { tab: "Outbox", fresh: false, title: "Redrive parked rows", main, path: &path, command: &command },
    )
}

pub(super) async fn redrive(call: Call) -> Answer {
    let form = form::read(&call.body)?;
    let (filter, why, limit) = (filter(&form)?, form::reason(&form)?, counted(&form)?);
    let who = call.identity()?.subject.as_str();
    let rows = call.state.operations.redrive(&filter, limit, true, who, &why).await?;
    form::tell(who, "redrive", &link("outbox", &form::asked(&form, FIELDS)?), &why);
    Ok(page::see_with_note(&call, "/console/outbox", format!("{rows} parked rows are due now.")))
}

/// How many the operator was shown: no more are touched.
pub(super) fn counted(form: &Query<'_>) -> Result<u32, Problem> {
    let counted =
        form.filled("matched")?.and_then(|count| count.parse().ok()).filter(|count| (1..=LIMIT_MAX).contains(count));
    counted.ok_or_else(|| Problem::field("matched", "must be what the count said: count first"))
}

fn filter(query: &Query<'_>) -> Result<RowFilter, Problem> {
    let (failure_type, older_than) = (dlt::failure_type(query)?, dlt::older_than(query)?);
    Ok(RowFilter { failure_type, older_than, status: None, after: None, ..outbox::filter(query)? })
}
