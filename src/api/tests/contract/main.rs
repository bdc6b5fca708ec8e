//! The HTTP contract line by line, over fakes of the rooms behind it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, whatever clippy takes them for")]
mod admin;
mod auth;
mod console;
mod console_pages;
mod dead_letters;
mod desk;
mod fakes;
mod health;
mod house;
mod judgement;
mod openapi;
mod orders;
mod pages;
mod server;
mod validation;
mod waiting;
