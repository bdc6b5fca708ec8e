//! The supervision tree as text: equal siblings share one line, and each actor with a problem has a line of its own.
use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli::output::table::{TableCell, TableColumn, printable, table, table_row};
use crate::cli::output::terminal::{TerminalFeatures, TextStyle};

const COLUMNS: [TableColumn; 6] = [
    TableColumn::text("PATH"),
    TableColumn::text("STATE"),
    TableColumn::number("GENERATION").drop_priority(2),
    TableColumn::number("RESTARTS"),
    TableColumn::text("MAILBOX").drop_priority(1),
    TableColumn::wrapped("LAST EXIT").drop_priority(3),
];

/// An actor as `/admin/actors` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActorLine {
    path: String,
    state: String,
    generation: u64,
    restarts: u64,
    depth: u64,
    capacity: u64,
    last_exit: Option<String>,
}

impl ActorLine {
    /// The actors of a response of `/admin/actors`.
    pub(super) fn all(response: &Value) -> Vec<Self> {
        response["actors"].as_array().into_iter().flatten().map(Self::from_json).collect()
    }

    /// The actor of one JSON object; a missing member is 0 or `-`.
    pub(super) fn from_json(actor: &Value) -> Self {
        let text = |name: &str| actor[name].as_str().map(printable);
        let number = |name: &str| actor[name].as_u64().unwrap_or(0);
        Self {
            path: text("path").unwrap_or_default(),
            state: text("state").unwrap_or_else(|| "-".to_owned()),
            generation: number("generation"),
            restarts: number("restarts"),
            depth: number("mailboxDepth"),
            capacity: number("mailboxCapacity"),
            last_exit: text("lastExit"),
        }
    }

    /// Whether it does not run, has been restarted, or has a mailbox that is four fifths full.
    pub(super) fn is_problem(&self) -> bool {
        self.state != "running" || self.restarts > 0 || (self.capacity > 0 && self.depth * 5 >= self.capacity * 4)
    }

    fn style(&self) -> TextStyle {
        match self.state.as_str() {
            "running" if self.restarts == 0 => TextStyle::Success,
            "running" | "restarting" | "paused" => TextStyle::Warning,
            _ => TextStyle::Error,
        }
    }

    /// The state in words; numbers that are 0 are left out.
    fn state_text(&self) -> String {
        let mut parts = vec![self.state.clone()];
        if self.restarts > 0 {
            parts.push(format!("{} restarts", self.restarts));
        }
        if self.depth > 0 {
            parts.push(format!("mailbox {}/{}", self.depth, self.capacity));
        }
        parts.extend(self.last_exit.iter().map(|reason| format!("last exit: {reason}")));
        parts.join(", ")
    }

    /// The name without its number, and the number: `partition-worker-7` is (`partition-worker`, 7).
    fn family(&self) -> Option<(&str, u64)> {
        let (_, name) = self.path.rsplit_once('/')?;
        let (family, number) = name.rsplit_once('-')?;
        Some((family, number.parse().ok()?))
    }
}

/// One line for each actor with its whole path, for pipes and for `--all`.
pub(super) fn flat(actors: &[ActorLine], terminal: TerminalFeatures) -> String {
    let cells = |actor: &ActorLine| -> Vec<TableCell> {
        table_row![
            &actor.path,
            TableCell::styled(&actor.state, actor.style()),
            actor.generation,
            actor.restarts,
            format!("{}/{}", actor.depth, actor.capacity),
            actor.last_exit.as_deref().unwrap_or_default(),
        ]
    };
    table(&COLUMNS, &actors.iter().map(cells).collect::<Vec<_>>(), terminal)
}

/// A line of the tree: its name, its state, and the lines below it.
#[derive(Debug)]
struct Branch {
    name: String,
    state: Option<(String, TextStyle)>,
    children: Vec<Branch>,
}

/// The tree with its branches drawn.
pub(super) fn tree(actors: &[ActorLine], terminal: TerminalFeatures) -> Vec<String> {
    let mut lines = vec![terminal.styled("posthaste", TextStyle::Bold)];
    draw(&branches(actors), "", terminal, &mut lines);
    lines
}

/// The branches of the top level. A supervisor is not in the list of actors; it has a branch because actors have it in their path.
fn branches(actors: &[ActorLine]) -> Vec<Branch> {
    let mut top: Vec<Branch> = Vec::new();
    for (supervisor, siblings) in by_supervisor(actors) {
        let folded = fold(&siblings);
        match supervisor.trim_start_matches('/') {
            "" => top.extend(folded),
            name => top.push(Branch { name: name.to_owned(), state: None, children: folded }),
        }
    }
    top
}

/// The actors by the path of their supervisor, in the order in which supervisors first appear.
fn by_supervisor(actors: &[ActorLine]) -> Vec<(String, Vec<&ActorLine>)> {
    let mut groups: Vec<(String, Vec<&ActorLine>)> = Vec::new();
    for actor in actors {
        let supervisor = actor.path.rsplit_once('/').map_or("", |(supervisor, _)| supervisor);
        match groups.iter_mut().find(|(path, _)| path == supervisor) {
            Some((_, siblings)) => siblings.push(actor),
            None => groups.push((supervisor.to_owned(), vec![actor])),
        }
    }
    groups
}

/// Siblings as branches: those with a problem first, then the others, where siblings of one family are one branch.
fn fold(siblings: &[&ActorLine]) -> Vec<Branch> {
    let single = |actor: &ActorLine| {
        let name = actor.path.rsplit_once('/').map_or(actor.path.as_str(), |(_, name)| name).to_owned();
        Branch { name, state: Some((actor.state_text(), actor.style())), children: Vec::new() }
    };
    let mut branches: Vec<Branch> =
        siblings.iter().filter(|actor| actor.is_problem()).map(|actor| single(actor)).collect();
    let mut families: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (family, number) in siblings.iter().filter(|actor| !actor.is_problem()).filter_map(|actor| actor.family()) {
        families.entry(family).or_default().push(number);
    }
    for actor in siblings.iter().filter(|actor| !actor.is_problem()) {
        let Some((family, _)) = actor.family() else {
            branches.push(single(actor));
            continue;
        };
        // The first of a family represents all of it.
        match families.remove(family) {
            Some(numbers) if numbers.len() > 1 => {
                let name = format!("{family}-{}", ranges(numbers.clone()));
                let state = format!("{} running", numbers.len());
                branches.push(Branch { name, state: Some((state, TextStyle::Success)), children: Vec::new() });
            }
            Some(_) => branches.push(single(actor)),
            None => {}
        }
    }
    branches
}

/// Numbers as ranges: `0…6,8…63`.
fn ranges(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}…{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

fn draw(branches: &[Branch], indent: &str, terminal: TerminalFeatures, lines: &mut Vec<String>) {
    let widest = branches.iter().map(|branch| branch.name.chars().count()).max().unwrap_or_default();
    for (index, Branch { name, state, children }) in branches.iter().enumerate() {
        let last = index + 1 == branches.len();
        let padding = " ".repeat(widest - name.chars().count() + 2);
        let state = state.as_ref().map(|(text, style)| format!("{padding}{}", terminal.styled(text, *style)));
        let corner = if last { "└─ " } else { "├─ " };
        lines.push(format!("{indent}{corner}{name}{}", state.unwrap_or_default()));
        draw(children, &format!("{indent}{}", if last { "   " } else { "│  " }), terminal, lines);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actors() -> Vec<ActorLine> {
        let actor = |path: String| json!({"path": path, "state": "running", "generation": 1, "restarts": 0, "mailboxDepth": 0, "mailboxCapacity": 16});
        let mut all = vec![actor("/failover-manager".into()), actor("/relay/outbox-publisher".into())];
        all.extend((0..64).map(|number| actor(format!("/relay/partition-worker-{number}"))));
        all.push(actor("/consumer-0".into()));
        all.extend((0..4).map(|number| actor(format!("/order-aggregate-{number}"))));
        let broken = &mut all[9];
        (broken["restarts"], broken["generation"], broken["lastExit"]) = (2.into(), 3.into(), "panic".into());
        ActorLine::all(&json!({"actors": all}))
    }

    #[test]
    fn equal_siblings_share_a_line_and_problems_come_first() {
        let text = tree(&actors(), TerminalFeatures::PIPE).join("\n");

        let expected = "posthaste\n\
            ├─ failover-manager     running\n\
            ├─ consumer-0           running\n\
            ├─ order-aggregate-0…3  4 running\n\
            └─ relay\n   \
               ├─ partition-worker-7           running, 2 restarts, last exit: panic\n   \
               ├─ outbox-publisher             running\n   \
               └─ partition-worker-0…6,8…63  63 running";
        let with_single_spaces = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(with_single_spaces(&text), with_single_spaces(expected), "{text}");
        assert!(text.contains("\n   ├─ partition-worker-7"), "{text}");
    }

    #[test]
    fn stopped_restarted_and_nearly_full_actors_are_problems() {
        let problems = |actors: &[ActorLine]| actors.iter().filter(|actor| actor.is_problem()).count();
        let mut all = actors();
        assert_eq!(problems(&all), 1);

        all[0].state = "paused".into();
        (all[1].depth, all[1].capacity) = (13, 16);
        (all[2].depth, all[2].capacity) = (12, 16);

        assert_eq!(problems(&all), 3);
    }

    #[test]
    fn a_flat_list_names_the_whole_path_of_every_actor() {
        let text = flat(&actors(), TerminalFeatures::PIPE);

        assert!(text.starts_with("PATH ") && text.lines().count() == 1 + 71, "{text}");
        assert!(text.contains("/relay/partition-worker-63"), "{text}");
    }

    #[test]
    fn numbers_are_shown_as_ranges() {
        assert_eq!(ranges(vec![3, 0, 1, 2]), "0…3");
        assert_eq!(ranges(vec![5]), "5");
        assert_eq!(ranges(vec![0, 2, 3, 9]), "0,2…3,9");
    }
}
