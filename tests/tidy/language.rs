//! Words that only this repository once used: they may not appear in any identifier, text, comment or document.
use proc_macro2::{TokenStream, TokenTree};

use crate::markdown::documents;
use crate::source::{SourceFile, parsed};

/// Words that name no component and no act of this field.
const FORBIDDEN: &str = "told tell tells telling whoever nobody somebody someone anybody crowd crowds parcel parcels kid kids bury buried \
    fellow fellows farewell farewells dice manners vitals debt debts owe owes owed nudge nudges letterbox postbox heart hearts doubt \
    doubts patience fare alike rubbish";

/// Words that are fine in a sentence, while an identifier has a better name in this field.
const FORBIDDEN_IN_NAMES: &str =
    "bell bells seat desk house beside cargo letter letters crowded wise whose fate because ears hears heard deaf";

/// Uses of such a word that have a reason: the word in its context, and the files that may use it.
const EXCEPTIONS: [(&str, &str, &str); 3] = [
    ("nobody", "", "the operating system's unprivileged user"),
    ("kid", "src/api/", "the JOSE header that names a key (RFC 7515)"),
    ("", "tests/tidy/language.rs", "the list of the words, and the test of the checker"),
];

fn is_excepted(word: &str, context: &str, path: &str) -> bool {
    let applies = |(text, folder, _): &(&str, &str, &str)| {
        path.starts_with(folder) && context.contains(text) && (text.is_empty() || text.to_lowercase().contains(word))
    };
    EXCEPTIONS.iter().any(applies)
}

fn is_forbidden(word: &str) -> bool {
    FORBIDDEN.split_whitespace().any(|forbidden| forbidden == word)
}

fn is_forbidden_in_names(word: &str) -> bool {
    is_forbidden(word) || FORBIDDEN_IN_NAMES.split_whitespace().any(|forbidden| forbidden == word)
}

/// Splits snake_case, CamelCase and SCREAMING_CASE into lower-case words.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut follows_lower_case = false;
    for character in name.chars() {
        if character == '_' || character.is_numeric() {
            words.push(String::new());
        } else if character.is_uppercase() && follows_lower_case {
            words.push(character.to_lowercase().collect());
        } else if let Some(word) = words.last_mut() {
            word.extend(character.to_lowercase());
        }
        follows_lower_case = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The forbidden word of an identifier, if it has one. A dead letter is Kafka's and RabbitMQ's own word.
fn forbidden_in_name(name: &str) -> Option<String> {
    let words = words_of_name(name);
    let dead_letter = |at: usize| words[at].starts_with("letter") && at > 0 && words[at - 1] == "dead";
    (0..words.len()).find(|&at| is_forbidden_in_names(&words[at]) && !dead_letter(at)).map(|at| words[at].clone())
}

pub(crate) fn forbidden_in_text(text: &str) -> Option<String> {
    let mut words = text.split(|character: char| !character.is_alphabetic()).map(str::to_lowercase);
    words.find(|word| is_forbidden(word))
}

fn visit_tokens(stream: TokenStream, visit: &mut impl FnMut(&TokenTree)) {
    for token in stream {
        match &token {
            TokenTree::Group(group) => visit_tokens(group.stream(), visit),
            _ => visit(&token),
        }
    }
}

fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("//") { Some(line) } else { line.split_once(" // ").map(|(_, comment)| comment) }
}

/// Line and description of each forbidden word in a file.
fn findings(file: &SourceFile) -> Vec<String> {
    let mut findings = Vec::new();
    let mut add = |line: usize, kind: &str, word: String, context: &str| {
        if !is_excepted(&word, context, &file.path) {
            findings.push(format!("{}:{line}: {kind} has the word {word:?}", file.path));
        }
    };
    let stream: TokenStream = file.text.parse().expect("a file that was parsed before");
    visit_tokens(stream, &mut |token| {
        let line = token.span().start().line;
        match token {
            TokenTree::Ident(name) => {
                let name = name.to_string();
                if let Some(word) = forbidden_in_name(&name) {
                    add(line, &format!("identifier {name}"), word, &name);
                }
            }
            TokenTree::Literal(text) => {
                let text = text.to_string();
                if let Some(word) = forbidden_in_text(&text) {
                    add(line, "text", word, &text);
                }
            }
            _ => {}
        }
    });
    for (number, line) in file.text.lines().enumerate() {
        if let Some(word) = comment(line).and_then(forbidden_in_text) {
            add(number + 1, "comment", word, line);
        }
    }
    findings
}

#[test]
fn names_texts_and_comments_use_the_words_of_the_field() {
    let found: Vec<String> = parsed().iter().flat_map(findings).collect();

    assert!(found.is_empty(), "CONTRIBUTING.md has the words to use instead:\n{}", found.join("\n"));
}

#[test]
fn documents_use_the_words_of_the_field() {
    let found: Vec<String> = documents()
        .iter()
        .flat_map(|(name, text)| text.lines().enumerate().map(move |(at, line)| (name, at + 1, line)))
        .filter_map(|(name, line, text)| forbidden_in_text(text).map(|word| format!("{name}:{line}: {word:?}")))
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn checker_finds_forbidden_words_in_names_texts_and_comments() {
    let code = "/// Buried here.\nfn bell_of_dead_letter() { print(\"the user nobody\", \"told\"); } // whoever\nstruct KidRecord;\nconst PATIENCE: u8 = 0;";
    let found = findings(&SourceFile::parse("example.rs", code));

    let expected = ["1: comment has the word \"buried\"", "2: identifier bell", "2: text has the word \"told\""];
    for finding in expected.into_iter().chain([
        "2: comment has the word \"whoever\"",
        "3: identifier KidRecord",
        "4: identifier PATIENCE",
    ]) {
        assert!(found.iter().any(|line| line.contains(finding)), "{finding} is not in {found:?}");
    }
    assert!(!found.iter().any(|line| line.contains("letter\"") || line.contains("nobody")), "{found:?}");
}
