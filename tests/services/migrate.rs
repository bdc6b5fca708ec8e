//! `posthaste migrate up` on an empty database reports what it has applied.
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::process::run;

#[test]
fn migrate_up_reports_each_migration_that_it_applies() {
    let backend = Backend::new();

    let (code, lines, messages) = run(&backend, &["migrate", "up", "--json"]);

    let applied: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(code == 0 && !applied.is_empty(), "{messages}");
    assert!(applied.iter().all(|migration| migration["appliedAt"].is_string()), "{lines}");
    let (code, lines, messages) = run(&backend, &["migrate", "status", "--json"]);
    let status: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!((code, status), (0, applied), "{messages}");

    let (code, lines, messages) = run(&Backend::new(), &["migrate", "up"]);
    assert!(code == 0 && lines.lines().count() > 1, "{messages}");
    assert!(lines.lines().all(|line| line.starts_with('V') && line.ends_with("  applied")), "{lines}");
    assert!(messages.contains("order.events was created") && messages.contains("every topic exists"), "{messages}");
    assert!(!messages.contains("ERROR") && !messages.contains("WARN"), "{messages}");
}
