//! Rules of this repository that no compiler checks: boundaries, sizes, names, words, and that documents and code agree.
mod boundaries;
mod configure;
mod coverage {
    mod conformance;
    mod metrics;
    mod migrations;
}
mod documents;
mod files;
mod imports;
mod language;
mod markdown;
mod names;
mod objectives;
mod operations;
mod source;
mod structure;
