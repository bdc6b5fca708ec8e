//! The supervision tree as nested lists. An opened actor shows its details, and its fault buttons where faults are enabled.
use app::dispatch::{ActorView, SupervisorView};
use maud::{Markup, html};

use super::tree::{ActorEntry, ActorTree};
use crate::console::format::{duration, or_dash, pluralize, state_label};
use crate::console::links::link;

/// The faults: the value of the form field and the label of the button.
const FAULTS: [(&str, &str); 4] =
    [("stop", "Stop"), ("panic", "Kill (panic)"), ("pause", "Pause"), ("resume", "Resume")];

/// How the tree is shown.
pub(super) struct TreeView<'a> {
    /// The CSRF field of the fault buttons; none where faults are not enabled.
    pub(super) csrf: Option<&'a Markup>,
    /// Whether folded siblings are shown open, as after a search.
    pub(super) opened: bool,
}

impl TreeView<'_> {
    pub(super) fn tree(&self, tree: &ActorTree) -> Markup {
        html! { ul class="tree" { (self.node(tree)) } }
    }

    fn node(&self, tree: &ActorTree) -> Markup {
        let entries = html! {
            @for entry in &tree.entries { (self.entry(entry)) }
            @for subtree in &tree.subtrees { (self.node(subtree)) }
        };
        html! {
            @match &tree.supervisor {
                Some(supervisor) => li class="supervisor" { (supervisor_line(supervisor)) ul { (entries) } },
                None => (entries),
            }
        }
    }

    fn entry(&self, entry: &ActorEntry) -> Markup {
        match entry {
            ActorEntry::One(actor) => self.actor(actor, "actor"),
            ActorEntry::Equal(actors) => {
                let (first, last) = (&actors[0], &actors[actors.len() - 1]);
                let name = first.path.trim_end_matches(|c: char| c.is_ascii_digit());
                let numbers = (&first.path[name.len()..], &last.path[name.len()..]);
                let waiting: usize = actors.iter().map(|actor| actor.mailbox_depth).sum();
                html! {
                    li {
                        details class="fold" id={ "fold" (name) } open[self.opened] {
                            summary {
                                (state_label(first.state)) " "
                                strong { (name) (numbers.0) "…" (numbers.1) } " "
                                span class="kind" { (first.actor) } " "
                                span class="quiet" { (actors.len()) " equal"
                                    @if first.restarts > 0 { ", each with " (pluralize(first.restarts, "restart", "restarts")) }
                                    @if waiting > 0 { ", " (waiting) " messages in mailboxes" } }
                            }
                            ul { @for actor in actors { (self.actor(actor, "actor")) } }
                        }
                    }
                }
            }
        }
    }

    /// One actor; `list` distinguishes the lists of a page that show the same actor.
    pub(super) fn actor(&self, actor: &ActorView, list: &str) -> Markup {
        html! {
            li {
                details class="actor" id={ (list) (actor.path) } data-path=(actor.path) {
                    summary {
                        (state_label(actor.state)) " " strong { (actor.path) } " " span class="kind" { (actor.actor) } " "
                        span class="facts-line" {
                            span { "generation " (actor.generation) }
                            @if actor.restarts > 0 { span class="watch" { (pluralize(actor.restarts, "restart", "restarts")) } }
                            span { (mailbox(actor)) " " (actor.mailbox_depth) " of " (actor.mailbox_capacity) }
                        }
                    }
                    div class="drawer" {
                        dl {
                            @if let Some(work) = &actor.in_progress { dt { "In progress" } dd { (work) } }
                            dt { "Last exit" } dd { (or_dash(actor.last_exit.as_deref())) }
                            dt { "Supervisor" } dd { (actor.supervisor) }
                            dt { "Restarts" } dd { (actor.restarts) }
                            @if let Some(uptime) = actor.uptime { dt { "Runs for" } dd { (duration(uptime)) } }
                        }
                        p {
                            a href={ "/console/actors" (actor.path) } { "Details and last events" } " · "
                            a href=(events_of(&actor.path)) { "Events of this actor" }
                        }
                        @if let Some(csrf) = self.csrf { (fault_buttons(csrf, &actor.path)) }
                    }
                }
            }
        }
    }
}

/// The events of one actor. The quotation marks are those of the event's JSON: worker-1 is not the beginning of worker-10.
pub(super) fn events_of(path: &str) -> String {
    link("/console/events", &[("q", &format!("\"{path}\""))])
}

/// The line of a supervisor: strategy, and the restarts that remain in its window.
fn supervisor_line(supervisor: &SupervisorView) -> Markup {
    html! {
        div class="supervisor-line" {
            strong { (supervisor.label) } " "
            span class="chip" { (supervisor.strategy) } " "
            (restart_budget(supervisor))
        }
    }
}

/// The restarts of a supervisor's window, of those that it permits.
pub(super) fn restart_budget(supervisor: &SupervisorView) -> Markup {
    let SupervisorView { label, restarts_max, window, restarts_in_window: used, .. } = supervisor;
    let class = match used {
        0 => "quiet",
        used if used * 2 > *restarts_max => "bad",
        _ => "watch",
    };
    html! {
        span class={ "budget " (class) } {
            meter min="0" max=(restarts_max) value=(used) aria-label={ "restarts of " (label) } {}
            " " (used) " of " (restarts_max) " restarts in " (duration(*window))
        }
    }
}

pub(super) fn mailbox(actor: &ActorView) -> Markup {
    html! { meter class="mailbox" min="0" max=(actor.mailbox_capacity.max(1)) value=(actor.mailbox_depth) aria-label={ "mailbox of " (actor.path) } {} }
}

pub(super) fn fault_buttons(csrf: &Markup, path: &str) -> Markup {
    html! {
        form method="post" action="/console/actors/fault" class="buttons" {
            (csrf)
            input type="hidden" name="path" value=(path);
            span class="quiet" { "Inject a fault:" }
            @for (action, label) in FAULTS {
                button name="action" value=(action) aria-label={ (label) " " (path) } class=[(action == "panic").then_some("danger")] { (label) }
            }
        }
    }
}
