//! `migrate` on an embedded store, which migrates itself: the command reports the version that it reads from the file.
use serde_json::{Value, json};

use crate::harness::backend::Backend;
use crate::harness::process::{Posthaste, run};

fn status(backend: &Backend) -> (i32, Value, String) {
    let (code, stdout, stderr) = run(backend, &["migrate", "status", "--json"]);
    (code, serde_json::from_str(&stdout).expect("an object"), stderr)
}

#[test]
fn migrate_status_reports_the_schema_version_and_refuses_a_later_one() {
    let backend = Backend::new();
    let (code, report, stderr) = status(&backend);
    assert_eq!((code, &report["store"], &report["version"]), (0, &json!("embedded"), &Value::Null), "{stderr}");
    assert!(
        stderr.contains("no store") && !backend.data_folder().exists(),
        "the status command creates nothing: {stderr}"
    );

    Posthaste::start(&backend, &[]).stop();
    let (code, report, _) = status(&backend);
    assert_eq!((code, &report["version"]), (0, &report["known"]));
    let (code, stdout, _) = run(&backend, &["migrate", "status"]);
    assert!(code == 0 && stdout.contains("up to date") && stdout.contains(&report["known"].to_string()), "{stdout}");

    write_version(&backend, 99);
    let (code, report, stderr) = status(&backend);
    assert_eq!((code, &report["version"]), (1, &json!(99)));
    assert!(stderr.contains("schema version 99"), "{stderr}");
    assert_eq!(run(&backend, &["migrate"]).0, 1);

    write_version(&backend, 1);
    let (code, _, stderr) = status(&backend);
    assert!(code == 0 && stderr.contains("the service migrates it to"), "{stderr}");
}

/// Writes the schema version of another release: byte 60 of the file (sqlite.org/fileformat2.html, user_version).
fn write_version(backend: &Backend, version: u32) {
    use std::os::unix::fs::FileExt;
    let path = backend.data_folder().join("posthaste.db");
    let file = std::fs::File::options().write(true).open(path).expect("the store");
    file.write_all_at(&version.to_be_bytes(), 60).expect("written");
}
