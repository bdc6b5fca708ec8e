//! The cast as a tree, and, where drills are allowed, harm for each.
use std::collections::BTreeMap;

use app::dispatch::ActorView;
use maud::{Markup, html};

use super::form;
use super::page::{self, Page};
use super::words::{or_dash, state};
use crate::admin::actors::fault;
use crate::call::Call;
use crate::error::Problem;
use crate::route::Answer;

/// What can be done to an actor: as the form says it, as the button does.
const FAULTS: [(&str, &str); 4] =
    [("stop", "Stop"), ("panic", "Kill (panic)"), ("pause", "Pause"), ("resume", "Resume")];

/// A row of the tree.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// A supervisor that stands in paths only.
    Branch(String),
    /// An actor, so deep in the tree.
    Leaf(usize, ActorView),
}

pub(super) async fn show(call: Call) -> Answer {
    let faults = call.state.dispatch.faults_enabled();
    let main = html! {
        @if faults {
            p class="warning" { strong { "Fault injection is on: " } "the buttons here do harm, and supervisors mend it. Never in production." }
        }
        div class="wide" { table {
            caption { "Actors under their supervisors" }
            thead { tr {
                @for name in ["Actor", "Kind", "State", "Generation", "Restarts", "Last exit", "Mailbox"] { th scope="col" { (name) } }
                @if faults { th scope="col" { "For drills" } }
            } }
            tbody { @for line in tree(call.state.dispatch.actors()) { (row(&call, &line, faults)) } }
        } }
        p { a href="/actuator/metrics/actor_restarts_total" { "actor_restarts_total" } " · "
            a href="/actuator/metrics/actor_mailbox_depth" { "actor_mailbox_depth" } }
    };
    let page = Page {
        tab: "Actors",
        fresh: true,
        title: "Actors",
        main,
        path: "/admin/actors",
        command: "posthaste actors tree",
    };
    page::show(&call, &page)
}

/// Every actor below the supervisor that stands in its path; those without one are the root's.
fn tree(actors: Vec<ActorView>) -> Vec<Line> {
    let mut below: BTreeMap<Option<String>, Vec<ActorView>> = BTreeMap::new();
    for actor in actors {
        below.entry(actor.parent.clone()).or_default().push(actor);
    }
    let mut lines = Vec::new();
    for (parent, mut actors) in below {
        actors.sort_by_key(|actor| in_order(&actor.path));
        let depth = usize::from(parent.is_some());
        lines.extend(parent.map(Line::Branch));
        lines.extend(actors.into_iter().map(|actor| Line::Leaf(depth, actor)));
    }
    lines
}

/// Names that end in a number go by it: 2 before 10.
fn in_order(path: &str) -> (String, u64) {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    (name.to_owned(), path[name.len()..].parse().unwrap_or(0))
}

fn row(call: &Call, line: &Line, faults: bool) -> Markup {
    let (depth, actor) = match line {
        Line::Branch(path) => return html! { tr { th scope="rowgroup" colspan=(7 + usize::from(faults)) { (path) } } },
        Line::Leaf(depth, actor) => (*depth, actor),
    };
    html! {
        tr {
            th scope="row" class={ "depth-" (depth) } { (actor.path) }
            td { (actor.actor) }
            td { (state(actor.state)) }
            td class="number" { (actor.generation) }
            td class="number" { (actor.restarts) }
            td { (or_dash(actor.last_exit.as_deref())) }
            td class="number" { (actor.mailbox_depth) " of " (actor.mailbox_capacity) }
            @if faults { td { (harm(call, &actor.path)) } }
        }
    }
}

fn harm(call: &Call, path: &str) -> Markup {
    html! {
        form method="post" action="/console/actors/fault" class="buttons" {
            (form::mark(call))
            input type="hidden" name="path" value=(path);
            @for (action, told) in FAULTS {
                button name="action" value=(action) aria-label={ (told) " " (path) } { (told) }
            }
        }
    }
}

pub(super) async fn inject(call: Call) -> Answer {
    let form = form::read(&call.body)?;
    let unknown = || Problem::not_found("no such actor or action, or fault injection is not enabled");
    let (path, action) = (form.filled("path")?.unwrap_or_default(), form.filled("action")?.unwrap_or_default());
    let kind = fault(action).ok_or_else(unknown)?;
    let by = call.identity()?.subject.as_str();
    call.state.dispatch.inject(path, kind, by).map_err(|_| unknown())?;
    form::tell(by, action, path, "a drill");
    Ok(page::see_with_note(&call, "/console/actors", format!("{path} was told: {action}.")))
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
    fn the_tree_goes_by_supervisor_and_number() {
        let relay = Some("/relay");
        let actors = vec![
            actor("/relay/partition-worker-10", relay),
            actor("/consumer-0", None),
            actor("/relay/partition-worker-2", relay),
            actor("/relay/outbox-publisher", relay),
        ];
        let told: Vec<String> = tree(actors)
            .into_iter()
            .map(|line| match line {
                Line::Branch(path) => path,
                Line::Leaf(depth, actor) => format!("{depth} {}", actor.path),
            })
            .collect();
        let expected = [
            "0 /consumer-0",
            "/relay",
            "1 /relay/outbox-publisher",
            "1 /relay/partition-worker-2",
            "1 /relay/partition-worker-10",
        ];
        assert_eq!(told, expected);
    }
}
