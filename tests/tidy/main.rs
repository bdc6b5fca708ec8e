//! Rules of this repository that no compiler checks: boundaries, sizes, names, words, and that documents and code agree.
mod boundaries;
mod configure;
mod documents;
mod files;
mod imports;
mod language;
mod markdown;
mod names;
mod operations;
mod source;
mod structure;
