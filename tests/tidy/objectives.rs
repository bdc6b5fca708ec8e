//! The objectives of `docs/slo.md`: each has recorded ratios, a budget, alerts, and tests under load and under a fault.
use std::process::Command;

use crate::markdown;
use crate::source::{read, root};

const OBJECTIVES: [&str; 4] = ["availability", "delivery", "parked", "recovery"];
const WINDOWS: [&str; 5] = ["5m", "30m", "1h", "6h", "3d"];

/// A rule of a file: its name (of the series or the alert), its expression, and the objective that it is labelled with.
struct Rule {
    name: String,
    expression: String,
    objective: Option<String>,
}

/// The rules of a file whose expressions have one line each.
fn rules(text: &str) -> Vec<Rule> {
    let starts = |line: &str| line.starts_with("      - record: ") || line.starts_with("      - alert: ");
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines() {
        let value = || line.split_once(": ").expect("a value").1.to_owned();
        if starts(line) {
            rules.push(Rule { name: value(), expression: String::new(), objective: None });
        } else if let Some(rule) = rules.last_mut() {
            match line.trim_start() {
                expression if expression.starts_with("expr: ") => rule.expression = value(),
                labels if labels.starts_with("labels: {slo: ") => {
                    rule.objective =
                        labels.split(['{', '}']).nth(1).and_then(|one| one.split(": ").nth(1)).map(str::to_owned);
                }
                _ => {}
            }
        }
    }
    rules
}

fn recorded() -> Vec<Rule> {
    rules(&read(&root().join("docker/slo-rules.yml")))
}

#[test]
fn every_objective_has_ratios_over_all_windows_and_a_budget() {
    let rules = recorded();
    for objective in OBJECTIVES {
        let of = |name: &str| {
            let mut found =
                rules.iter().filter(|rule| rule.name == name && rule.objective.as_deref() == Some(objective));
            found.next().unwrap_or_else(|| panic!("{objective} has no {name}"))
        };
        for window in WINDOWS {
            let Rule { expression, .. } = of(&format!("slo:error_ratio:{window}"));
            let ranges: Vec<&str> =
                expression.split('[').skip(1).filter_map(|part| part.split([']', ':']).next()).collect();
            assert!(!ranges.is_empty() && ranges.iter().all(|range| *range == window), "{expression}");
            let count = |bracket: char| expression.matches(bracket).count();
            assert!(count('(') == count(')') && count('[') == count(']') && count('{') == count('}'), "{expression}");
        }
        let budget = &of("slo:error_budget").expression;
        let budget: f64 = budget["vector(".len()..budget.len() - 1].parse().expect("a number");
        assert!(budget > 0.0 && budget < 0.05, "{objective}: {budget}");
    }
}

/// An instance that only relays the events of other services writes none itself.
#[test]
fn parked_events_are_a_share_of_the_delivered_and_parked_ones() {
    for Rule { expression, .. } in recorded().iter().filter(|rule| rule.objective.as_deref() == Some("parked")) {
        let Some((parked, all)) = expression.split_once(" / ") else { continue };
        assert_eq!(all, format!("({} + {parked})", parked.replace("_failed_", "_delivered_")));
    }
}

#[test]
fn every_burn_rate_alert_needs_a_long_and_a_short_window() {
    let document = read(&root().join("docs/slo.md"));
    let rules = recorded();
    let alerts: Vec<&Rule> = rules.iter().filter(|rule| rule.name.starts_with("ErrorBudget")).collect();
    assert_eq!(alerts.len(), 3);
    for Rule { name, expression, .. } in alerts {
        let windows: Vec<&str> =
            expression.split("slo:error_ratio:").skip(1).filter_map(|part| part.split(' ').next()).collect();
        assert!(windows.len() == 2 && windows.iter().all(|window| WINDOWS.contains(window)), "{expression}");
        assert!(document.contains(&format!("\n| `{name}` |")), "docs/slo.md lacks the alert {name}");
    }
}

#[test]
fn every_objective_has_a_scenario_under_load_and_one_under_a_fault() {
    let document = read(&root().join("docs/slo.md"));
    let (_, scenarios) = document.split_once("\n## Scenarios").expect("the section");
    for objective in OBJECTIVES {
        let row = scenarios.lines().find(|line| line.starts_with(&format!("| `{objective}` |"))).expect(objective);
        assert_eq!(row.matches("[`").count(), 2, "{row}");
        markdown::assert_that_tests_exist(row);
    }
}

#[test]
fn promtool_accepts_the_rules_where_it_is_installed() {
    let files = ["docker/rules.yml", "docker/slo-rules.yml"].map(|file| root().join(file));
    // The other tests of this file check the rules without it.
    let Ok(checked) = Command::new("promtool").args(["check", "rules"]).args(&files).output() else { return };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
