//! Limits of the values of a webhook, for JSON and for forms, and the log line of every change.
use std::collections::BTreeSet;

use app::consume::webhooks::NAMES_MAX;
use domain::WebhookId;

use crate::error::Problem;
use crate::request::context::RequestContext;

/// Most characters of a URL.
pub(crate) const URL_MAX: usize = 2_048;
/// Most characters of a description.
pub(crate) const DESCRIPTION_MAX: usize = 1_000;
/// Most characters of a topic's name or of a type.
const NAME_MAX: usize = 255;

/// A text within its limit.
pub(crate) fn legal_text(field: &'static str, text: &str, max: usize) -> Result<String, Problem> {
    if text.chars().count() <= max && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    Err(illegal_text(field, max))
}

pub(crate) fn illegal_text(field: &'static str, max: usize) -> Problem {
    Problem::field(field, format!("must be a string of at most {max} characters, none of them a zero byte"))
}

/// Different names of topics or types within their limits.
pub(crate) fn legal_names(field: &'static str, names: Vec<String>) -> Result<Vec<String>, Problem> {
    let legal = |name: &String| !name.is_empty() && name.chars().count() <= NAME_MAX && !name.contains('\0');
    let distinct: BTreeSet<&String> = names.iter().collect();
    let all_legal = names.len() <= NAMES_MAX && distinct.len() == names.len() && names.iter().all(legal);
    if all_legal { Ok(names) } else { Err(illegal_names(field)) }
}

pub(crate) fn illegal_names(field: &'static str) -> Problem {
    Problem::field(
        field,
        format!("must be an array of at most {NAMES_MAX} different names of 1 to {NAME_MAX} characters"),
    )
}

/// Logs a change of a webhook by an operator, and puts it on the live stream.
pub(crate) fn log_change(context: &RequestContext, action: &str, id: WebhookId) -> Result<(), Problem> {
    let by = context.identity()?.subject.as_str();
    tracing::info!(event = "webhook_changed", by, action, webhook = %id, "a webhook was changed: {action}");
    let fields = [("by", by.to_owned()), ("action", action.to_owned()), ("on", format!("webhook {id}"))];
    context.state.dispatch.announce("operator_action", fields.into());
    Ok(())
}
