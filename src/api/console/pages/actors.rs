//! The actors under their supervisors, and the injection of faults if it is enabled.
use std::collections::BTreeMap;

use app::dispatch::ActorView;
use maud::{Markup, html};

use crate::admin::actors::fault;
use crate::console::form;
use crate::console::format::{or_dash, state_label};
use crate::console::layout::{self, Page};
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;

/// The faults: the value of the form field and the label of the button.
const FAULTS: [(&str, &str); 4] =
    [("stop", "Stop"), ("panic", "Kill (panic)"), ("pause", "Pause"), ("resume", "Resume")];

/// A table row of the tree.
#[derive(Debug, PartialEq, Eq)]
enum TreeRow {
    /// The path of a supervisor.
    Supervisor(String),
    /// The depth of an actor in the tree, and the actor.
    Actor(usize, ActorView),
}

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let faults = context.state.dispatch.faults_enabled();
    let main = html! {
        @if faults {
            p class="warning" { strong { "Fault injection is enabled: " } "these buttons make actors fail, and their supervisors restart them. Do not enable it in production." }
        }
        div class="wide" { table {
            caption { "Actors under their supervisors" }
            thead { tr {
                @for name in ["Actor", "Kind", "State", "Generation", "Restarts", "Last exit", "Mailbox"] { th scope="col" { (name) } }
                @if faults { th scope="col" { "Inject a fault" } }
            } }
            tbody { @for row in tree(context.state.dispatch.actors()) { (table_row(&context, &row, faults)) } }
        } }
        p { a href="/actuator/metrics/actor_restarts_total" { "actor_restarts_total" } " · "
            a href="/actuator/metrics/actor_mailbox_depth" { "actor_mailbox_depth" } }
    };
    let page = Page {
        tab: "Actors",
        refreshes: true,
        title: "Actors",
        main,
        path: "/admin/actors",
        command: "posthaste actors tree",
    };
    layout::show(&context, &page)
}

/// The actors grouped by the supervisor in their path; actors without one come first.
fn tree(actors: Vec<ActorView>) -> Vec<TreeRow> {
    let mut below: BTreeMap<Option<String>, Vec<ActorView>> = BTreeMap::new();
    for actor in actors {
        below.entry(actor.parent.clone()).or_default().push(actor);
    }
    let mut rows = Vec::new();
    for (parent, mut actors) in below {
        actors.sort_by_key(|actor| sort_key(&actor.path));
        let depth = usize::from(parent.is_some());
        rows.extend(parent.map(TreeRow::Supervisor));
        rows.extend(actors.into_iter().map(|actor| TreeRow::Actor(depth, actor)));
    }
    rows
}

/// Sorts a trailing number by its value: 2 before 10.
fn sort_key(path: &str) -> (String, u64) {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    (name.to_owned(), path[name.len()..].parse().unwrap_or(0))
}

fn table_row(context: &RequestContext, row: &TreeRow, faults: bool) -> Markup {
    let (depth, actor) = match row {
        TreeRow::Supervisor(path) => {
            return html! { tr { th scope="rowgroup" colspan=(7 + usize::from(faults)) { (path) } } };
        }
        TreeRow::Actor(depth, actor) => (*depth, actor),
    };
    html! {
        tr {
            th scope="row" class={ "depth-" (depth) } { (actor.path) }
            td { (actor.actor) }
            td { (state_label(actor.state)) }
            td class="number" { (actor.generation) }
            td class="number" { (actor.restarts) }
            td { (or_dash(actor.last_exit.as_deref())) }
            td class="number" { (actor.mailbox_depth) " of " (actor.mailbox_capacity) }
            @if faults { td { (fault_buttons(context, &actor.path)) } }
        }
    }
}

fn fault_buttons(context: &RequestContext, path: &str) -> Markup {
    html! {
        form method="post" action="/console/actors/fault" class="buttons" {
            (form::csrf_field(context))
            input type="hidden" name="path" value=(path);
            @for (action, label) in FAULTS {
                button name="action" value=(action) aria-label={ (label) " " (path) } { (label) }
            }
        }
    }
}

pub(crate) async fn inject(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let unknown = || Problem::not_found("no such actor or action, or fault injection is not enabled");
    let (path, action) = (form.non_empty("path")?.unwrap_or_default(), form.non_empty("action")?.unwrap_or_default());
    let kind = fault(action).ok_or_else(unknown)?;
    let operator = context.identity()?.subject.as_str();
    context.state.dispatch.inject(path, kind, operator).map_err(|_| unknown())?;
    form::log_operator_action(operator, action, path, "a drill");
    Ok(layout::see_other_with_note(&context, "/console/actors", format!("{path}: {action} was injected.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(path: &str, parent: Option<&str>) -> ActorView {
        ActorView {
            path: path.into(),
            actor: String::new(),
            state: "running",
            generation: 1,
            restarts: 0,
            mailbox_depth: 0,
            mailbox_capacity: 1,
            last_exit: None,
            parent: parent.map(Into::into),
        }
    }

    #[test]
    fn the_tree_is_sorted_by_supervisor_and_number() {
        let relay = Some("/relay");
        let actors = vec![
            actor("/relay/partition-worker-10", relay),
            actor("/consumer-0", None),
            actor("/relay/partition-worker-2", relay),
            actor("/relay/outbox-publisher", relay),
        ];
        let rows: Vec<String> = tree(actors)
            .into_iter()
            .map(|row| match row {
                TreeRow::Supervisor(path) => path,
                TreeRow::Actor(depth, actor) => format!("{depth} {}", actor.path),
            })
            .collect();
        let expected = [
            "0 /consumer-0",
            "/relay",
            "1 /relay/outbox-publisher",
            "1 /relay/partition-worker-2",
            "1 /relay/partition-worker-10",
        ];
        assert_eq!(rows, expected);
    }
}
