//! Sizes and names: functions of at most a screen, short test names, docs that say something, type names that are defined once.
use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::source::{SourceFile, is_test_only, parsed};

/// Longest function, in lines.
const FUNCTION_LINES_MAX: usize = 70;
/// Longest test name, in characters.
const TEST_NAME_MAX: usize = 80;
/// Fewest words of a documentation comment that is a sentence of its own.
const DOC_WORDS_MIN: usize = 4;

/// Type names that several crates or modules may define: idioms of Rust, and the shape of a subcommand in the command line.
const SHARED_TYPE_NAMES: [&str; 9] =
    ["Options", "Error", "Result", "Builder", "Context", "Args", "State", "Inner", "Arguments"];

/// The types that a file defines, and its violations of the limits.
#[derive(Default)]
struct Inspection {
    types: Vec<(String, usize)>,
    findings: Vec<(usize, String)>,
}

impl Inspection {
    fn of(file: &SourceFile) -> Self {
        let mut inspection = Self::default();
        inspection.visit_file(&file.tree);
        inspection
    }

    fn define(&mut self, name: &syn::Ident) {
        self.types.push((name.to_string(), name.span().start().line));
    }

    fn function(&mut self, attributes: &[syn::Attribute], signature: &syn::Signature, whole: Span) {
        let (name, line) = (signature.ident.to_string(), signature.span().start().line);
        let lines = whole.end().line + 1 - line;
        if lines > FUNCTION_LINES_MAX {
            self.findings.push((line, format!("function {name} has {lines} lines")));
        }
        let last = |attribute: &syn::Attribute| attribute.path().segments.last().map(|last| last.ident.to_string());
        if attributes.iter().any(|attribute| last(attribute).as_deref() == Some("test")) && name.len() > TEST_NAME_MAX {
            self.findings.push((line, format!("test name {name} has {} characters", name.len())));
        }
    }
}

fn doc_text(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    attribute.path().is_ident("doc").then(|| text.value().trim().to_owned())
}

/// Whether a line is a whole sentence. The last line of a paragraph may be short.
fn is_sentence(line: &str) -> bool {
    line.chars().next().is_some_and(char::is_uppercase) && line.ends_with('.')
}

impl<'ast> Visit<'ast> for Inspection {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outside = self.types.len();
        visit::visit_item_mod(self, item);
        // The types of an inline test module are private to it.
        if is_test_only(&item.attrs) {
            self.types.truncate(outside);
        }
    }
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident);
        visit::visit_item_struct(self, item);
    }
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.define(&item.ident);
        visit::visit_item_enum(self, item);
    }
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.define(&item.ident);
        visit::visit_item_trait(self, item);
    }
    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.define(&item.ident);
        visit::visit_item_type(self, item);
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, item.span());
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, item.span());
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.span());
        visit::visit_trait_item_fn(self, item);
    }
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let Some(text) = doc_text(attribute) {
            let words = text.split_whitespace().count();
            if words < DOC_WORDS_MIN && is_sentence(&text) {
                let line = attribute.span().start().line;
                self.findings.push((line, format!("documentation {text:?} says nothing the name does not")));
            }
        }
    }
}

/// Files and lines of each type name that is defined more than once outside tests.
fn types_defined_twice(files: &[SourceFile]) -> Vec<String> {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_test()) {
        for (name, line) in Inspection::of(file).types {
            definitions.entry(name).or_default().push(format!("{}:{line}", file.path));
        }
    }
    definitions.retain(|name, definitions| definitions.len() > 1 && !SHARED_TYPE_NAMES.contains(&name.as_str()));
    definitions.into_iter().map(|(name, definitions)| format!("{name}: {}", definitions.join(", "))).collect()
}

#[test]
fn functions_test_names_and_docs_keep_to_their_limits() {
    let found: Vec<String> = parsed()
        .iter()
        .flat_map(|file| {
            Inspection::of(file).findings.into_iter().map(|(line, finding)| format!("{}:{line}: {finding}", file.path))
        })
        .collect();

    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_type_name_is_defined_once_in_the_workspace() {
    let found = types_defined_twice(&parsed());

    assert!(found.is_empty(), "give each a name that says what sets it apart:\n{}", found.join("\n"));
}

#[test]
fn checker_finds_long_functions_short_docs_and_repeated_types() {
    let long = format!("fn long() {{\n{}}}\n", "call();\n".repeat(FUNCTION_LINES_MAX));
    let named = format!("#[tokio::test]\nasync fn {}() {{}}\n", "a".repeat(TEST_NAME_MAX + 1));
    let code = format!("{long}{named}/// Its name.\nstruct Row;\n#[cfg(test)]\nmod tests {{ struct Fixture; }}");
    let files = ["src/a.rs", "src/b.rs"].map(|path| SourceFile::parse(path, &code));

    let found = Inspection::of(&files[0]).findings;
    let twice = types_defined_twice(&files);

    assert_eq!(
        found.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
        [1, FUNCTION_LINES_MAX + 4, FUNCTION_LINES_MAX + 5]
    );
    assert_eq!(twice, [format!("Row: src/a.rs:{0}, src/b.rs:{0}", FUNCTION_LINES_MAX + 6)]);
}
