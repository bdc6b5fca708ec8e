//! `migrate` where the store looks after itself: what it says of the file is read from the file.
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::process::{Posthaste, run};

fn status(ground: &Ground) -> (i32, Value, String) {
    let (code, stdout, stderr) = run(ground, &["migrate", "status", "--json"]);
    (code, serde_json::from_str(&stdout).expect("an object"), stderr)
}

#[test]
fn the_schema_of_a_data_folder_is_looked_up_and_a_later_programs_is_told() {
    let ground = Ground::new();
    let (code, told, stderr) = status(&ground);
    assert_eq!((code, &told["store"], &told["version"]), (0, &json!("embedded"), &Value::Null), "{stderr}");
    assert!(stderr.contains("no store") && !ground.data().exists(), "looking makes nothing: {stderr}");

    Posthaste::start(&ground, &[]).stop();
    let (code, told, _) = status(&ground);
    assert_eq!((code, &told["version"]), (0, &told["known"]));
    let (code, stdout, _) = run(&ground, &["migrate", "status"]);
    assert!(code == 0 && stdout.contains("up to date") && stdout.contains(&told["known"].to_string()), "{stdout}");

    write_version(&ground, 99);
    let (code, told, stderr) = status(&ground);
    assert_eq!((code, &told["version"]), (1, &json!(99)));
    assert!(stderr.contains("schema version 99"), "{stderr}");
    assert_eq!(run(&ground, &["migrate"]).0, 1);

    write_version(&ground, 1);
    let (code, _, stderr) = status(&ground);
    assert!(code == 0 && stderr.contains("the service migrates it to"), "{stderr}");
}

/// As another release would have left it: the number stands at byte 60 of the file (sqlite.org/fileformat2.html, user_version).
fn write_version(ground: &Ground, version: u32) {
    use std::os::unix::fs::FileExt;
    let path = ground.data().join("posthaste.db");
    let file = std::fs::File::options().write(true).open(path).expect("the store");
    file.write_all_at(&version.to_be_bytes(), 60).expect("written");
}
