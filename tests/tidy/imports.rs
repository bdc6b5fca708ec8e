//! Which file of a crate imports which: the paths in its code, resolved to the files that define the modules.
use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::source::{SourceFile, is_test_only};

/// From a file to the files that it imports.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// The paths that a file's code names, except those of test modules inside the file.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

fn flatten(tree: &syn::UseTree, front: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let leaf = |front: &[String], name: &syn::Ident| front.iter().cloned().chain([name.to_string()]).collect();
    match tree {
        syn::UseTree::Path(path) => {
            front.push(path.ident.to_string());
            flatten(&path.tree, front, paths);
            front.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, front, paths)),
        syn::UseTree::Name(name) => paths.push(leaf(front, &name.ident)),
        syn::UseTree::Rename(rename) => paths.push(leaf(front, &rename.ident)),
        syn::UseTree::Glob(_) => paths.push(front.clone()),
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test_only(&item.attrs) {
            flatten(&item.tree, &mut Vec::new(), &mut self.0);
        }
    }
    // `pub(crate)` and `pub(super)` name no item.
    fn visit_visibility(&mut self, _visibility: &'ast syn::Visibility) {}
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Root file and folder of each crate. Files of a nested crate belong to it and not to the crate around it.
fn crate_roots(files: &[SourceFile]) -> Vec<(String, String)> {
    let root = |file: &SourceFile| {
        let (folder, name) = file.path.rsplit_once('/')?;
        (name == "lib.rs" || name == "main.rs" && folder != "src").then(|| (file.path.clone(), folder.to_owned()))
    };
    let mut roots: Vec<(String, String)> = files.iter().filter_map(root).collect();
    roots.sort_by_key(|(_, folder)| std::cmp::Reverse(folder.len()));
    roots
}

/// Module path of a file below its crate's folder: `a/b.rs` is `a::b`.
fn module(path: &str, root: &str, folder: &str) -> Vec<String> {
    if path == root {
        return Vec::new();
    }
    let below = path.strip_prefix(folder).unwrap_or(path).trim_start_matches('/');
    below.trim_end_matches(".rs").split('/').map(str::to_owned).collect()
}

/// The file that a path leads into: the longest prefix that is a module; the rest is an item of that file.
fn resolve(path: &[String], from: &[String], modules: &BTreeMap<Vec<String>, String>) -> Option<String> {
    let mut absolute: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "super" | "self" => from.to_vec(),
        // A child module named without `self::`, or an item of another crate.
        first => {
            let child: Vec<String> = from.iter().cloned().chain([first.to_owned()]).collect();
            modules.contains_key(&child).then(|| from.to_vec())?
        }
    };
    let mut rest = path;
    while let Some(first) = rest.first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => {
                absolute.pop();
            }
            _ => break,
        }
        rest = &rest[1..];
    }
    absolute.extend(rest.iter().cloned());
    while !absolute.is_empty() && !modules.contains_key(&absolute) {
        absolute.pop();
    }
    modules.get(&absolute).cloned()
}

/// Imports between the files of each crate, by the crate's root file.
pub(crate) fn imports(files: &[SourceFile]) -> BTreeMap<String, Edges> {
    let roots = crate_roots(files);
    let home = |path: &str| roots.iter().find(|(_, folder)| path.starts_with(&format!("{folder}/")));
    let mut crates: BTreeMap<String, Vec<(&SourceFile, Vec<String>)>> = BTreeMap::new();
    for file in files {
        if let Some((root, folder)) = home(&file.path) {
            crates.entry(root.clone()).or_default().push((file, module(&file.path, root, folder)));
        }
    }
    crates.into_iter().map(|(root, members)| (root, edges(&members))).collect()
}

fn edges(members: &[(&SourceFile, Vec<String>)]) -> Edges {
    let modules = members.iter().map(|(file, module)| (module.clone(), file.path.clone())).collect();
    let mut edges = Edges::new();
    for (file, module) in members {
        let mut paths = Paths::default();
        paths.visit_file(&file.tree);
        let targets = paths.0.iter().filter_map(|path| resolve(path, module, &modules));
        edges.entry(file.path.clone()).or_default().extend(targets.filter(|target| *target != file.path));
    }
    edges
}
