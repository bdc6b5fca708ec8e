//! Tests of the compiled program over HTTP and on its command line, with the embedded store on a free port. Nothing is mocked: processes
//! are really killed.
mod browser;
mod embedded;
mod every_backend;
mod harness;
