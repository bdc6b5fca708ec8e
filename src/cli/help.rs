//! Examples and exit codes of the commands, for `--help` and the manual pages.
use clap::Command;

/// Exit codes of every command.
const EXIT_STATUS: &str = "0 done, 1 failed, 2 wrong arguments, 78 mistakes in the configuration (or the store lacks migrations or has another \
     number of partitions)";
/// Further exit codes of `serve`, `relay` and `demo`.
const EXIT_STATUS_OF_SERVICE: &str =
    "70 the supervision tree gave up (or a listener failed or the instance id was lost), 130 a second signal";
/// Exit codes of `doctor`. It reports missing migrations and another number of partitions with 1, not with 78.
const EXIT_STATUS_OF_DOCTOR: &str =
    "0 nothing is wrong, 1 a check found something, 2 wrong arguments, 78 mistakes in the configuration";

/// Examples by command, each with its purpose.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "posthaste",
        &[
            ("posthaste demo", "see what it does, in a minute"),
            ("posthaste serve --dev", "run it here, with an embedded store and a development key"),
            ("posthaste doctor", "check the installation"),
        ],
    ),
    (
        "posthaste serve",
        &[
            ("posthaste serve --dev", "embedded in ./data, with the development key"),
            ("posthaste serve --config FILE --migrate", "as configured, with an up-to-date schema"),
        ],
    ),
    (
        "posthaste relay",
        &[(
            "posthaste relay --config FILE --migrate",
            "next to a service that calls posthaste.publish in its database",
        )],
    ),
    (
        "posthaste adopt",
        &[
            ("posthaste adopt --table shop.outbox --dry-run", "the statements, for a table with Debezium's columns"),
            ("posthaste adopt --table shop.outbox", "publish to outbox.event.<aggregatetype>"),
            ("posthaste adopt --table shop.outbox --header tenant=x-tenant", "a column as a header"),
        ],
    ),
    (
        "posthaste chaos",
        &[
            ("posthaste chaos", "a minute on the configured store and broker, on data of its own"),
            ("posthaste chaos --instances 3 --time 10m --seed 7", "three processes on PostgreSQL or Redis, repeatable"),
        ],
    ),
    (
        "posthaste outbox list",
        &[
            ("posthaste outbox list --status parked", "what waits for an operator"),
            ("posthaste outbox list --key ORDER -o json", "the events of an order, for a program"),
        ],
    ),
    (
        "posthaste webhook create",
        &[
            (
                "posthaste webhook create https://example.org/hooks --topic order.events",
                "all events of the orders, from now on",
            ),
            (
                "posthaste webhook create URL --topic order.events --type ORDER_CREATED --from-beginning",
                "one type, from the oldest kept event on",
            ),
        ],
    ),
    ("posthaste webhook redrive", &[("posthaste webhook redrive ID --dry-run", "count the dead letters")]),
    ("posthaste outbox show", &[("posthaste outbox show 6", "the row, its record, and why it is in its state")]),
    (
        "posthaste outbox why",
        &[
            ("posthaste outbox why 6", "by the row's id"),
            ("posthaste outbox why ORDER", "the order's first event that has not left"),
        ],
    ),
    ("posthaste outbox retry", &[("posthaste outbox retry 6 --reason 'the broker is back'", "make it due now")]),
    (
        "posthaste outbox redrive",
        &[
            ("posthaste outbox redrive --type ORDER_CREATED --dry-run", "change nothing"),
            ("posthaste outbox redrive --failure NETWORK --rate 50 --reason 'ticket 7'", "50 rows a second"),
        ],
    ),
    ("posthaste audit", &[("posthaste audit --by olga -n 20", "the last 20 actions of olga")]),
    (
        "posthaste dlt list",
        &[
            ("posthaste dlt list --redriven false", "those of the order topic that were not sent back"),
            ("posthaste dlt list --topic invoices --failure TIMEOUT", "another topic of the configuration"),
        ],
    ),
    (
        "posthaste dlt redrive",
        &[
            ("posthaste dlt redrive 3/17 --reason 'ticket 7'", "send one dead letter back"),
            ("posthaste dlt redrive --failure SYSTEM --rate 20 --yes", "20 a second, without confirmation"),
            ("posthaste dlt redrive --topic invoices --dry-run", "count those of another topic"),
        ],
    ),
    (
        "posthaste topic tail",
        &[
            ("posthaste topic tail order.events", "on a terminal: follow"),
            ("posthaste topic tail order.events --from-beginning --json", "all that is kept, then stop"),
            ("posthaste topic tail order.events --after 3/17 --follow", "continue after a position"),
            ("posthaste topic tail order.events --since 10m --key ORDER", "what happened to an order"),
        ],
    ),
    (
        "posthaste actors tree",
        &[
            ("posthaste actors tree --problems", "only actors with problems"),
            ("posthaste actors tree --watch --url http://10.0.0.7:8081", "another instance, every 2 s"),
        ],
    ),
    ("posthaste top", &[("posthaste top --url http://10.0.0.7:8081", "another instance; q quits")]),
    (
        "posthaste doctor",
        &[("posthaste doctor --url http://127.0.0.1:8080", "a problem if this service does not answer")],
    ),
    ("posthaste migrate", &[("posthaste migrate --dry-run", "what is missing"), ("posthaste migrate up", "apply it")]),
    ("posthaste token mint", &[("posthaste token mint --sub root --role ADMIN --ttl 10m", "for the console")]),
    ("posthaste bench", &[("posthaste bench create --time 10s", "creates over HTTP, on throwaway data")]),
];

/// The examples and exit codes of the command with this path, such as `posthaste outbox why`.
fn sections(path: &str) -> Vec<(&'static str, Vec<String>)> {
    let examples =
        EXAMPLES.iter().find(|(command, _)| *command == path).map(|(_, examples)| *examples).unwrap_or_default();
    let widest = examples.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let lines = examples.iter().map(|(command, purpose)| format!("{command:widest$}  # {purpose}")).collect::<Vec<_>>();
    let mut sections = Vec::new();
    if !lines.is_empty() {
        sections.push(("EXAMPLES", lines));
    }
    sections.push(("EXIT STATUS", vec![exit_status(path)]));
    sections
}

fn exit_status(path: &str) -> String {
    match path {
        "posthaste doctor" => EXIT_STATUS_OF_DOCTOR.to_owned(),
        "posthaste" | "posthaste serve" | "posthaste relay" | "posthaste demo" => {
            format!("{EXIT_STATUS}, {EXIT_STATUS_OF_SERVICE}")
        }
        _ => EXIT_STATUS.to_owned(),
    }
}

/// The command with examples and exit codes below its help, and below that of all its subcommands.
pub(super) fn with_examples(command: Command) -> Command {
    with_sections(command, "posthaste".to_owned())
}

fn with_sections(mut command: Command, path: String) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |subcommand| with_sections(subcommand, path));
    }
    let section = |(title, lines): (&str, Vec<String>)| format!("{title}:\n  {}", lines.join("\n  "));
    let text: Vec<String> = sections(&path).into_iter().map(section).collect();
    command.after_help(text.join("\n\n"))
}

/// The same sections in the language of manual pages. `name` is the page's, such as `posthaste-outbox-why`.
pub(super) fn manual_sections(name: &str) -> String {
    let escaped = |line: String| line.replace('\\', "\\\\").replace('-', "\\-").replace('\'', "\\(aq");
    let section = |(title, lines): (&str, Vec<String>)| {
        let lines: Vec<String> = lines.into_iter().map(escaped).collect();
        format!(".SH \"{title}\"\n.nf\n{}\n.fi\n", lines.join("\n"))
    };
    sections(&name.replace('-', " ")).into_iter().map(section).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::CommandLine;
    use super::*;

    /// Every command by its path.
    fn paths(command: &Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        command
            .get_subcommands()
            .for_each(|subcommand| paths(subcommand, &format!("{path} {}", subcommand.get_name()), found));
    }

    #[test]
    fn every_example_is_of_a_command_and_has_valid_arguments() {
        let mut known = Vec::new();
        paths(&CommandLine::command(), "posthaste", &mut known);
        for (path, examples) in EXAMPLES {
            assert!(known.iter().any(|known| known == path), "{path}");
            for (example, _) in *examples {
                let id = "0197a1f0-0000-7000-8000-00000000000a";
                let example = example.replace("ORDER ", &format!("{id} ")).replace("'the broker is back'", "x");
                let example = example.replace("'ticket 7'", "x");
                let example = example.strip_suffix("ORDER").map_or(example.clone(), |front| format!("{front}{id}"));
                let parsed = CommandLine::command().try_get_matches_from(example.split(' '));
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err().map(|error| error.to_string()));
            }
        }
    }

    #[test]
    fn help_ends_with_examples_and_exit_status() {
        let mut command = with_examples(CommandLine::command());
        let top = command.find_subcommand_mut("outbox").and_then(|outbox| outbox.find_subcommand_mut("redrive"));

        let help = top.expect("the command exists").render_help().to_string();

        assert!(help.contains("EXAMPLES:\n  posthaste outbox redrive --type ORDER_CREATED --dry-run"), "{help}");
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.ends_with(&format!("EXIT STATUS: {EXIT_STATUS}")), "{help}");
        for command in ["serve", "relay", "demo"] {
            let ends = exit_status(&format!("posthaste {command}"));
            assert!(ends.contains("70 the supervision tree gave up (or a listener failed"), "{command}: {ends}");
        }
        assert!(words.contains("[possible values: NETWORK, TIMEOUT, VALIDATION, SYSTEM]"), "{help}");
        assert!(manual_sections("posthaste-outbox-why").contains(".SH \"EXAMPLES\"\n.nf\nposthaste outbox why 6"));
    }
}
