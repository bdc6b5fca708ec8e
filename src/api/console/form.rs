//! Forms: reading their fields, and the fields that several pages share.
use app::port_types::FailureType;
use maud::{Markup, html};

use crate::admin::operator_body::{COUNT_MESSAGE, LIMIT_MAX, REASON_MAX, is_reason, parse_count};
use crate::admin::paced_redrive::Pace;
use crate::console::session::ConsoleSession;
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::query::Query;

/// The name of the field that contains the session's CSRF token.
pub(crate) const CSRF_FIELD: &str = "mark";

/// The fields of a form, which is encoded like a query string.
pub(crate) fn read(body: &[u8]) -> Result<Query<'_>, Problem> {
    std::str::from_utf8(body).map(Query::parse).map_err(|_| Problem::bad_request("the form must be UTF-8"))
}

/// The reason of an operator's action. It is required, because it is stored in the audit record.
pub(crate) fn reason(form: &Query<'_>) -> Result<String, Problem> {
    let given = form.non_empty("reason")?.map(str::trim).filter(|reason| !reason.is_empty());
    let valid = given.filter(|reason| is_reason(reason));
    valid.map(str::to_owned).ok_or_else(|| Problem::field("reason", "must be a text of 1 to 1000 characters"))
}

/// The number of records that the operator saw in the dry run; the action changes no more than these.
pub(crate) fn matched_count(form: &Query<'_>) -> Result<u32, Problem> {
    let count = form.non_empty("matched")?.and_then(|count| count.parse().ok());
    let count = count.filter(|count| (1..=LIMIT_MAX).contains(count));
    count.ok_or_else(|| Problem::field("matched", "must be the number that the count returned: count first"))
}

/// The optional field of a redrive's rate.
pub(crate) fn rate_field() -> Markup {
    html! {
        label { "At most per second " input type="number" name="rate" min="1" max=(LIMIT_MAX) placeholder="no limit" autocomplete="off"; }
    }
}

/// The pace of a redrive by [`rate_field`].
pub(crate) fn pace(form: &Query<'_>) -> Result<Pace, Problem> {
    let Some(rate) = form.non_empty("rate")? else { return Ok(Pace::from_rate(None)) };
    parse_count(rate).map(|rate| Pace::from_rate(Some(rate))).ok_or_else(|| Problem::field("rate", COUNT_MESSAGE))
}

pub(crate) fn reason_field() -> Markup {
    html! {
        label { "Reason " input type="text" name="reason" required maxlength=(REASON_MAX) autocomplete="off"; }
    }
}

/// The hidden field with the CSRF token, for every form that changes something.
pub(crate) fn csrf_field(context: &RequestContext) -> Markup {
    html! {
        @if let Some(session) = &context.session { (session_csrf_field(session)) }
    }
}

/// The hidden field with the CSRF token of a session.
pub(crate) fn session_csrf_field(session: &ConsoleSession) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(session.csrf_token()); }
}

/// The raw values of these parameters; empty for an absent one.
pub(crate) fn raw_values<'a, const N: usize>(
    query: &'a Query<'_>,
    names: [&'static str; N],
) -> Result<[(&'static str, &'a str); N], Problem> {
    let mut values = names.map(|name| (name, ""));
    for (name, value) in &mut values {
        *value = query.non_empty(name)?.unwrap_or_default();
    }
    Ok(values)
}

/// The filter fields for failed rows and dead letters.
pub(crate) fn failure_filter_fields(key: &str, event_type: &str, failure: &str, age: &str) -> Markup {
    html! {
        (text_field("Key", "key", key)) (text_field("Type", "type", event_type))
        (failure_type_field(failure))
        (text_field("Older than (5s, 1h)", "olderThan", age))
    }
}

pub(crate) fn failure_type_field(selected: &str) -> Markup {
    select_field("Failure", "failureType", &FailureType::ALL.map(FailureType::as_str), selected)
}

pub(crate) fn text_field(label: &str, name: &str, value: &str) -> Markup {
    html! { label { (label) " " input type="text" name=(name) value=(value) autocomplete="off"; } }
}

/// A select element for a filter; its first option switches the filter off.
pub(crate) fn select_field(label: &str, name: &str, options: &[&str], selected: &str) -> Markup {
    html! {
        label { (label) " "
            select name=(name) {
                option value="" { "any" }
                @for option in options { option value=(option) selected[*option == selected] { (option) } }
            }
        }
    }
}

/// Hidden fields; empty values are left out.
pub(crate) fn hidden_fields(fields: &[(&str, &str)]) -> Markup {
    html! {
        @for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            input type="hidden" name=(name) value=(value);
        }
    }
}
