//! Stated times: the durations of a start, a restart, a stop and the publication of an event that the documents state. The other suites wait with
//! deadlines that a slow machine multiplies; here the stated times hold without a factor. Cargo runs one test program at a time, and the
//! tests of this one run one after another, so that nothing else uses the processors. Another process on the machine may delay
//! some runs; only a slow service delays all of them.
mod harness;
mod stated_times;
