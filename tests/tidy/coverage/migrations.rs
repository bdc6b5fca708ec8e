//! Statements of released migrations have not changed. Their comments may change: PostgreSQL databases record the checksum of the first released
//! text, which `src/adapters/postgres/schema/migration_files.rs` lists.
use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::language::forbidden_in_text;
use crate::source::texts;

/// SHA-256 of the statements of each released migration, as [`statements`] returns them.
const RELEASED: &[(&str, &str)] = &[
    ("embedded/V1", "d0a1253946e97ab35ad54ce5fab7e46aefe689d385be173bba8efed73e64ab5f"),
    ("embedded/V2", "59b8bf1b1de41ea0db87f823a3f48e1599d756f52df8c9620eca94f91d176656"),
    ("embedded/V3", "038500147effd0df6456f909ee20a23d8ad99801141e151f35f17bf6ae954a55"),
    ("embedded/V4", "99fc27cebb06a74e6fbe8d25ce4101734d36e80412b4508c5011a37726ae5701"),
    ("embedded/V5", "77cea7e1b4ee74e9579b91ed842526e21fdbd05848952e3ce8ce8fa434d2abe5"),
    ("embedded/V6", "9bd5d9313606083f234bf8b72038d8bccc8842f9b7c6790db3a846a99b31e925"),
    ("embedded/V7", "35107f507ecfdabca572396c6acd1fbeb534d4c1d67b3459ad7ca87b1c70f8fa"),
    ("embedded/V8", "5b3837c0cfe911fbab82004ee5070076816eb6b72325a52f7e8d09413047f26c"),
    ("embedded/V9", "ee64be28dee7a66b7098dd5497d32db0fb0dd0566df95f4534a8f295947a99fb"),
    ("embedded/V10", "fc4ab3044fc83e828fe7fd14672b18e49a9e781b002f73191c9c03dbf61d07e9"),
    ("postgres/V1", "66ab91db44a670b997ebd3e95585bb57e75b79dc10309f6947e34a597f536fbd"),
    ("postgres/V2", "f6fea20a439a6e4663d04803f4ab3ca4d4d7b4fa091cf42bc7b018bbe22cdb84"),
    ("postgres/V3", "e8dc673aa37ee448cedc98ea45c1243312fb27c183944c6986698e5c58b71974"),
    ("postgres/V4", "31dc15281958a59774eba93c1ba0d378681b9260473fc4ec3eebc8eb4d998ad0"),
    ("postgres/V5", "bf0895a42583d6fce50623fd3d078c36eead88a3d9197a2a4ac665032cf5a64f"),
    ("postgres/V6", "3f7603aac0a24e6be7715b920a2c5673d5d6ce4d7fdccf5e9e2e57b98fd7b791"),
    ("postgres/V7", "c88c4b696b873d1e587acfecc1aeea8d58f70e7b16bde86f431a195d6cd37bb4"),
    ("postgres/V8", "8f0299ca77404e969a07cc3496952120caa2af12ce1f40e01b4f96daec4db475"),
    ("postgres/V9", "3603a23fb78496f80215dc79b42ffe704ed50eb3490fe67a91328e01d5268761"),
    ("postgres/V10", "37255673a1bf9e87827aa58e9bb5e3e6687fce6b92a327c46aff147d011d96de"),
    ("postgres/V11", "219560ade2582503678cdc611fc26b57ec52d0049f6f2be984a5956b6a04a48c"),
    ("postgres/V12", "4fd2838edeccc13c74c88d51407dcb7e5995ed01c55e6ee0c2c02d274d0eb4e5"),
    ("postgres/V13", "5c52b60835575a5307037d64d25eda0c42d7b7abf4844b295257719c0ec4e68e"),
    ("postgres/V14", "7cfb5e166de2c31534f21d8b5ab5e0d08ca28a5c98681dc17034d1a72ff359e9"),
    ("postgres/V15", "2f1d1b789cab963ddf10830a6aaafda93e4db011badeb4daf19d14ecc13da0fd"),
    ("postgres/V16", "46f2322973f48d8df609ff23dcf313f90f4673d00c51d825983738395cfcd022"),
    ("postgres/V17", "2932705fc2a60829f47574532747183573add95189c0c5832dc2661c35a5440f"),
    ("postgres/V18", "a2737a3d78ba32130add03292cb7dc7a0a5d7ccb5ac2a5cce0cfc9ad4818ee10"),
    ("postgres/V19", "58127fac913c18a6fd33ba7a9181a248122c155fdbd277994d6165528a820e37"),
    ("postgres/V20", "d02523f0da97548a3d073525374c4f633ec8b5401e631c3613f4b346f3864d47"),
    ("postgres/V21", "84905d6ed96076d7ed2d84ad979be2ed76c3a75a5dff61644b29b588b5399044"),
];

/// A migration as SQL without comments, in which every other white space is one space. Literals, quoted names and dollar-quoted bodies stay as they
/// are: PostgreSQL stores a function's body with its comments.
fn statements(sql: &str) -> String {
    let mut kept = String::new();
    for token in tokens(sql) {
        if is_comment(token) || token.trim().is_empty() {
            if !kept.ends_with(' ') {
                kept.push(' ');
            }
        } else {
            kept.push_str(token);
        }
    }
    kept.trim().to_owned()
}

fn is_comment(token: &str) -> bool {
    token.starts_with("--") || token.starts_with("/*")
}

/// Comments, quoted texts and single characters, which together are the whole text.
fn tokens(sql: &str) -> impl Iterator<Item = &str> {
    let mut rest = sql;
    std::iter::from_fn(move || {
        let (token, after) = rest.split_at(token_length(rest)?);
        rest = after;
        Some(token)
    })
}

fn token_length(sql: &str) -> Option<usize> {
    let until = |from: usize, end: &str| sql[from..].find(end).map_or(sql.len(), |at| from + at + end.len());
    let length = match sql.chars().next()? {
        '-' if sql.starts_with("--") => sql.find('\n').unwrap_or(sql.len()),
        '/' if sql.starts_with("/*") => until(2, "*/"),
        '\'' => until(1, "'"),
        '"' => until(1, "\""),
        '$' => dollar_tag(sql).map_or(1, |tag| until(tag.len(), tag)),
        other => other.len_utf8(),
    };
    Some(length)
}

/// The `$tag$` with which the text begins. A parameter such as `$1` is none.
fn dollar_tag(sql: &str) -> Option<&str> {
    let name = sql[1..].split('$').next()?;
    let is_name = !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
    let tag = sql.get(..name.len() + 2)?;
    is_name.then_some(tag)
}

/// Store and version of each migration, such as `postgres/V1`, with its text.
fn migrations() -> BTreeMap<String, String> {
    let version = |path: &str| Some(path.strip_prefix("migrations/")?.split_once("__")?.0.to_owned());
    texts(".sql").into_iter().filter_map(|(path, text)| Some((version(&path)?, text))).collect()
}

#[test]
fn statements_of_released_migrations_have_not_changed() {
    let found = migrations().into_iter().map(|(version, text)| {
        let checksum = Sha256::digest(statements(&text)).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        (version, checksum)
    });

    let found: BTreeMap<String, String> = found.collect();

    let changed: Vec<_> = found.iter().filter(|(version, sum)| !RELEASED.contains(&(version, sum))).collect();
    assert!(changed.is_empty(), "write another migration, or add the new one to RELEASED: {changed:#?}");
    assert_eq!(found.len(), RELEASED.len(), "a released migration stays");
}

#[test]
fn comments_of_migrations_use_the_words_of_the_field() {
    let migrations = migrations();
    let comments = migrations.iter().flat_map(|(version, text)| {
        tokens(text).filter(|token| is_comment(token)).map(move |comment| (version, comment))
    });
    let found: Vec<_> = comments.filter(|(_, comment)| forbidden_in_text(comment).is_some()).collect();

    assert!(found.is_empty(), "CONTRIBUTING.md has the words to use instead: {found:#?}");
}

#[test]
fn comments_and_white_space_are_no_statements_and_literals_are() {
    let released = "SELECT '--x'  ,1; -- why\nDO $do$ -- kept\n$do$;\n";
    for (same, text) in [
        (true, "-- Another reason.\nSELECT '--x' ,1;\n\n/* why */ DO $do$ -- kept\n$do$; -- end"),
        (false, "SELECT '--y'  ,1; -- why\nDO $do$ -- kept\n$do$;\n"),
        (false, "SELECT '--x'  ,2; -- why\nDO $do$ -- kept\n$do$;\n"),
        (false, "SELECT '--x'  ,1; -- why\nDO $do$ -- changed\n$do$;\n"),
        (false, "SELECT '--x'  ,1; -- why\nDO $do$ -- kept\n $do$;\n"),
    ] {
        assert_eq!(statements(text) == statements(released), same, "{text}");
    }
    assert_eq!(statements("SELECT $1, \"a--b\", $2 -- end"), "SELECT $1, \"a--b\", $2");
}
