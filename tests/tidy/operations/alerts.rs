//! Alerts lead to the runbooks, depend on no setting of an installation, and the dashboard works with any data source.
use serde_json::Value;

use crate::source::{read, root};

const RULES: [&str; 2] = ["docker/rules.yml", "docker/slo-rules.yml"];

/// The anchors of a document, as Markdown renderers derive them from its headings.
fn anchors(document: &str) -> Vec<String> {
    let headings =
        document.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_alert_links_to_a_section_that_exists() {
    for file in RULES {
        let text = read(&root().join(file));
        let alerts = text.matches("- alert: ").count();
        let links: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
        assert!(alerts > 0 && links.len() == alerts, "{file}: {alerts} alerts, {} links", links.len());
        for link in links {
            let (document, anchor) = link.split_once('#').unwrap_or_else(|| panic!("{file}: {link} has no anchor"));
            let anchors = anchors(&read(&root().join(document)));
            assert!(anchors.iter().any(|known| known == anchor), "{file}: {document} has no section {anchor}");
        }
    }
}

#[test]
fn the_alert_of_partitions_without_an_owner_follows_the_configured_number() {
    let rules = read(&root().join("docker/rules.yml"));
    let alert = rules.split("- alert: ").find(|part| part.starts_with("PartitionsWithoutOwner")).expect("the alert");
    let defaults: toml::Table = read(&root().join("config/default.toml")).parse().expect("TOML");
    let partitions = defaults["outbox"]["partitions"].to_string();

    assert!(alert.contains("expr: sum(outbox_partitions_owned) < max(outbox_partitions)\n"), "{alert}");
    assert!(!alert.contains(&partitions), "{alert}");
}

#[test]
fn the_alert_of_a_stopped_actor_ignores_actors_that_were_removed() {
    let rules = read(&root().join("docker/rules.yml"));
    let alert = rules.split("- alert: ").find(|part| part.starts_with("ActorDown")).expect("the alert");
    let others = "{actor!=\"PartitionWorker\"}";

    assert!(alert.contains(&format!("expr: actor_up{others} < actor_registered{others}\n")), "{alert}");
}

/// An open breaker is half-open during each probe: an alert on the value 2 alone would begin its minute again with each of them.
#[test]
fn the_alert_of_an_open_breaker_lasts_through_its_probes() {
    let rules = read(&root().join("docker/rules.yml"));
    let alert = rules.split("- alert: ").find(|part| part.starts_with("BreakerOpen")).expect("the alert");

    assert!(alert.contains("expr: max by (instance) (kafka_breaker_state) > 0\n        for: 1m\n"), "{alert}");
}

/// A worker takes its next message only when it has finished one, so its mailbox of one is full while it works.
#[test]
fn the_alert_of_full_mailboxes_ignores_those_of_one_message() {
    let rules = read(&root().join("docker/rules.yml"));
    let alert = rules.split("- alert: ").find(|part| part.starts_with("MailboxNearlyFull")).expect("the alert");
    let others = "{actor!=\"PartitionWorker\"}";

    let share = format!("(actor_mailbox_depth{others} / actor_mailbox_capacity{others})");
    assert!(alert.contains(&format!("expr: max by (instance, actor) {share} > 0.8\n")), "{alert}");
}

/// Prometheus 3 stores the bucket `1` of a scrape as `1.0`, earlier versions as `1`: a comparison with either finds nothing in the other.
#[test]
fn no_rule_or_panel_compares_a_bucket_with_a_literal_integer() {
    let mut queries = vec!["docker/grafana/boards/posthaste.json"];
    queries.extend(RULES);
    for file in queries {
        let text = read(&root().join(file)).replace("\\\"", "\"").replace(' ', "");
        let bounds = text.split("le=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let integers: Vec<&str> =
            bounds.filter(|bound| bound.parse::<f64>().is_ok_and(|bound| bound.fract() == 0.0)).collect();
        assert!(integers.is_empty(), "{file}: le={integers:?}");
    }
    let rules = read(&root().join("docker/slo-rules.yml"));
    assert_eq!(rules.matches(r#"outbox_commit_to_ack_seconds_bucket{le=~"1|1\\.0"}["#).count(), 5, "in each window");
}

fn dashboard() -> Value {
    serde_json::from_str(&read(&root().join("docker/grafana/boards/posthaste.json"))).expect("JSON")
}

fn collect_data_sources<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("datasource").and_then(|source| source["uid"].as_str()));
            members.values().for_each(|member| collect_data_sources(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_data_sources(element, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_dashboard_asks_for_its_data_source_and_links_to_the_console() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let variable = |name: &str| variables.iter().find(|variable| variable["name"] == name).expect("a variable");
    let mut sources = Vec::new();
    collect_data_sources(&dashboard, &mut sources);

    assert_eq!(variable("datasource")["type"], "datasource");
    assert!(sources.len() > 30 && sources.iter().all(|uid| *uid == "${datasource}"), "{sources:?}");
    assert!(variable("console")["query"].as_str().is_some_and(|address| address.ends_with("/console")));
    assert_eq!(dashboard["links"][0]["url"], "${console}");
}

#[test]
fn the_dashboard_shows_the_versions_of_the_instances() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let expressions = panels.iter().filter_map(|panel| panel["targets"][0]["expr"].as_str());

    assert!(expressions.into_iter().any(|expression| expression.contains("posthaste_build_info")));
}
