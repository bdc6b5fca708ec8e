//! Whether a dead letter was redriven, by which operator and when.
use app::contract::rfc3339;
use app::operators::dead_letters::DeadLetter;
use maud::{Markup, html};

use crate::console::format::state_label;

pub(crate) fn redrive_state(dead_letter: &DeadLetter) -> Markup {
    html! {
        @match &dead_letter.redrive {
            None => (state_label("dead")),
            Some(redriven) if redriven.confirmed => { "sent back by " (redriven.audit.operator) " at " (rfc3339(redriven.at)) }
            Some(redriven) => { "being sent back by " (redriven.audit.operator) " since " (rfc3339(redriven.at)) }
        }
    }
}
