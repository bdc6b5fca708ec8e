//! What forms carry, and what each is asked for.
use app::port_types::FailureType;
use maud::{Markup, html};

use crate::admin::outbox::{REASON_MAX, is_reason};
use crate::call::Call;
use crate::error::Problem;
use crate::query::Query;

/// A form's fields: they are written as a query string is.
pub(super) fn read(body: &[u8]) -> Result<Query<'_>, Problem> {
    std::str::from_utf8(body).map(Query::parse).map_err(|_| Problem::bad_request("the form must be UTF-8"))
}

/// Why an operator acts: kept with what is done, so nobody may leave it out.
pub(super) fn reason(form: &Query<'_>) -> Result<String, Problem> {
    let given = form.filled("reason")?.map(str::trim).filter(|reason| !reason.is_empty());
    let fits = given.filter(|reason| is_reason(reason));
    fits.map(str::to_owned).ok_or_else(|| Problem::field("reason", "must be a text of 1 to 1000 characters"))
}

/// The field for the reason.
pub(super) fn reason_field() -> Markup {
    html! {
        label { "Reason " input type="text" name="reason" required maxlength=(REASON_MAX) autocomplete="off"; }
    }
}

/// The mark of the session, for every form that changes something.
pub(super) fn mark(call: &Call) -> Markup {
    html! { @if let Some(session) = &call.session { input type="hidden" name="mark" value=(session.mark); } }
}

/// What is asked for under these names, as it was written; empty where it is not.
pub(super) fn asked<'a, const N: usize>(
    query: &'a Query<'_>,
    names: [&'static str; N],
) -> Result<[(&'static str, &'a str); N], Problem> {
    let mut asked = names.map(|name| (name, ""));
    for (name, value) in &mut asked {
        *value = query.filled(name)?.unwrap_or_default();
    }
    Ok(asked)
}

/// The fields by which what failed is chosen.
pub(super) fn failed_fields(key: &str, kind: &str, failure: &str, age: &str) -> Markup {
    html! {
        (text_field("Key", "key", key)) (text_field("Type", "type", kind))
        (choice("Failure", "failureType", &FailureType::ALL.map(FailureType::as_str), failure))
        (text_field("Older than (5s, 1h)", "olderThan", age))
    }
}

/// A field that filters.
pub(super) fn text_field(label: &str, name: &str, value: &str) -> Markup {
    html! { label { (label) " " input type="text" name=(name) value=(value) autocomplete="off"; } }
}

/// A choice that filters; the first of it is no filter.
pub(super) fn choice(label: &str, name: &str, options: &[&str], chosen: &str) -> Markup {
    html! {
        label { (label) " "
            select name=(name) {
                option value="" { "any" }
                @for option in options { option value=(option) selected[*option == chosen] { (option) } }
            }
        }
    }
}

/// Fields that go along unseen; empty ones stay behind.
pub(super) fn carried(fields: &[(&str, &str)]) -> Markup {
    html! {
        @for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            input type="hidden" name=(name) value=(value);
        }
    }
}

/// Tells the log who did what to which, and why. The field is called `on`, because `target` is the log's own.
pub(super) fn tell(by: &str, action: &str, on: &str, reason: &str) {
    tracing::info!(event = "operator_action", by, action, on, reason, "an operator acted");
}
