//! Stories over HTTP: the real program, embedded, on a free port. Nothing is mocked; what is killed is really killed.
mod check;
mod cli;
mod console;
mod dead_letters;
mod demo;
mod durability;
mod faults;
mod folder;
mod ground;
mod http;
mod load;
mod operators;
mod orders;
mod process;
mod relay;
mod schema;
mod trouble;
