//! The supervision tree as data: supervisors with their actors, equal siblings folded into one entry.
use app::dispatch::{ActorView, SupervisorView};

/// Fewer equal siblings than this stay apart.
const FOLD_MIN: usize = 4;

/// A supervisor with its actors and its subtrees.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ActorTree {
    /// None for actors whose supervisor is not in the list.
    pub(super) supervisor: Option<SupervisorView>,
    pub(super) entries: Vec<ActorEntry>,
    pub(super) subtrees: Vec<ActorTree>,
}

/// An actor, or several siblings that differ only in their number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActorEntry {
    One(ActorView),
    Equal(Vec<ActorView>),
}

/// Whether the actor runs. An operator must examine the others first.
pub(super) fn is_running(actor: &ActorView) -> bool {
    actor.state == "running"
}

impl ActorTree {
    /// The tree of all actors that match a search text; every actor matches an empty text.
    pub(super) fn build(supervisors: Vec<SupervisorView>, actors: Vec<ActorView>, search_text: &str) -> Self {
        let mut actors: Vec<ActorView> = actors.into_iter().filter(|actor| matches(actor, search_text)).collect();
        actors.sort_by_key(|actor| (is_running(actor), sort_key(&actor.path)));
        let root = supervisors.iter().find(|supervisor| supervisor.parent.is_none()).cloned();
        let label = root.as_ref().map(|root| root.label.clone());
        let mut tree = match label {
            Some(label) => subtree(root, &label, &supervisors, &mut actors),
            None => Self { supervisor: None, entries: Vec::new(), subtrees: Vec::new() },
        };
        // An actor whose supervisor has just ended is still shown.
        tree.entries.extend(folded(actors));
        tree
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.subtrees.is_empty()
    }
}

fn subtree(
    supervisor: Option<SupervisorView>,
    label: &str,
    all: &[SupervisorView],
    actors: &mut Vec<ActorView>,
) -> ActorTree {
    let (own, rest) = std::mem::take(actors).into_iter().partition(|actor: &ActorView| actor.supervisor == label);
    *actors = rest;
    let children = all.iter().filter(|child| child.parent.as_deref() == Some(label));
    let subtrees: Vec<ActorTree> = children
        .map(|child| subtree(Some(child.clone()), &child.label, all, actors))
        .filter(|tree| !tree.is_empty())
        .collect();
    ActorTree { supervisor, entries: folded(own), subtrees }
}

/// Folds neighbours that are equal but for their number. The input is sorted.
fn folded(actors: Vec<ActorView>) -> Vec<ActorEntry> {
    let mut groups: Vec<Vec<ActorView>> = Vec::new();
    for actor in actors {
        match groups.last_mut() {
            Some(group) if is_equal(&group[0], &actor) => group.push(actor),
            _ => groups.push(vec![actor]),
        }
    }
    let entry = |group: Vec<ActorView>| match group.len() {
        FOLD_MIN.. => vec![ActorEntry::Equal(group)],
        _ => group.into_iter().map(ActorEntry::One).collect(),
    };
    groups.into_iter().flat_map(entry).collect()
}

/// Whether two siblings are the same to an operator. The depth of a mailbox changes from moment to moment, so it does not count.
fn is_equal(one: &ActorView, other: &ActorView) -> bool {
    is_running(one)
        && (&one.actor, one.state, one.generation, one.restarts, &one.last_exit)
            == (&other.actor, other.state, other.generation, other.restarts, &other.last_exit)
        && sort_key(&one.path).0 == sort_key(&other.path).0
}

/// Sorts a trailing number by its value: 2 before 10.
fn sort_key(path: &str) -> (String, u64) {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    (name.to_owned(), path[name.len()..].parse().unwrap_or(0))
}

fn matches(actor: &ActorView, search_text: &str) -> bool {
    let search_text = search_text.to_lowercase();
    let texts = [&*actor.path, &*actor.actor, actor.state, actor.last_exit.as_deref().unwrap_or_default()];
    texts.iter().any(|text| text.to_lowercase().contains(&search_text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn actor(path: &str, supervisor: &str) -> ActorView {
        ActorView {
            path: path.into(),
            actor: path.trim_end_matches(|c: char| c.is_ascii_digit()).into(),
            state: "running",
            generation: 1,
            restarts: 0,
            uptime: None,
            mailbox_depth: 0,
            mailbox_capacity: 1,
            in_progress: None,
            last_exit: None,
            supervisor: supervisor.into(),
            parent: None,
        }
    }

    fn supervisor(label: &str, parent: Option<&str>) -> SupervisorView {
        SupervisorView {
            label: label.into(),
            parent: parent.map(Into::into),
            strategy: "one_for_one",
            restarts_max: 3,
            window: Duration::from_secs(60),
            restarts_in_window: 0,
        }
    }

    /// The tree as lines, indented by depth.
    fn lines(tree: &ActorTree, depth: usize) -> Vec<String> {
        let indent = "  ".repeat(depth);
        let name = tree.supervisor.as_ref().map_or("?", |supervisor| supervisor.label.as_str());
        let entry = |entry: &ActorEntry| match entry {
            ActorEntry::One(actor) => format!("{indent}  {}", actor.path),
            ActorEntry::Equal(actors) => format!("{indent}  {} x{}", actors[0].path, actors.len()),
        };
        let mut lines = vec![format!("{indent}{name}")];
        lines.extend(tree.entries.iter().map(entry));
        lines.extend(tree.subtrees.iter().flat_map(|tree| self::lines(tree, depth + 1)));
        lines
    }

    fn sample() -> (Vec<SupervisorView>, Vec<ActorView>) {
        let supervisors =
            vec![supervisor("root", None), supervisor("/relay", Some("root")), supervisor("workers", Some("/relay"))];
        let mut actors = vec![actor("/consumer-0", "root"), actor("/relay/publisher", "/relay")];
        actors.extend((0..12).map(|number| actor(&format!("/relay/worker-{number}"), "workers")));
        (supervisors, actors)
    }

    #[test]
    fn actors_stand_under_their_supervisors_and_equal_siblings_are_folded() {
        let (supervisors, actors) = sample();
        let tree = ActorTree::build(supervisors, actors, "");
        let expected =
            ["root", "  /consumer-0", "  /relay", "    /relay/publisher", "    workers", "      /relay/worker-0 x12"];
        assert_eq!(lines(&tree, 0), expected);
    }

    #[test]
    fn failing_actors_come_first_and_restarted_ones_are_listed_separately() {
        let (supervisors, mut actors) = sample();
        actors[9].state = "restarting";
        (actors[4].restarts, actors[4].generation) = (1, 2);
        let tree = ActorTree::build(supervisors, actors, "");
        let shown = lines(&tree, 0);
        assert_eq!(
            shown[5..],
            [
                "      /relay/worker-7",
                "      /relay/worker-0",
                "      /relay/worker-1",
                "      /relay/worker-2",
                "      /relay/worker-3 x8"
            ]
        );
    }

    #[test]
    fn a_search_keeps_what_matches_and_drops_empty_supervisors() {
        let (supervisors, actors) = sample();
        let tree = ActorTree::build(supervisors, actors, "WORKER-1");
        assert_eq!(
            lines(&tree, 0),
            [
                "root",
                "  /relay",
                "    workers",
                "      /relay/worker-1",
                "      /relay/worker-10",
                "      /relay/worker-11"
            ]
        );
    }

    #[test]
    fn an_actor_without_a_known_supervisor_is_still_shown() {
        let tree = ActorTree::build(Vec::new(), vec![actor("/lost", "gone")], "");
        assert_eq!(lines(&tree, 0), ["?", "  /lost"]);
    }
}
