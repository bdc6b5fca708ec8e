//! Bucket bounds of the histograms. They are fixed: a changed bound breaks the recorded history of every dashboard.

/// No buckets, for counters and gauges.
pub(crate) const NONE: &[f64] = &[];

/// One actor message or wake-up, in seconds: most take microseconds, and one that takes a second is already a fault.
pub(crate) const MESSAGE: &[f64] =
    &[0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

/// One call or request, in seconds, up to the request timeout of 10 s.
pub(crate) const CALL: &[f64] =
    &[0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Age of an event, in seconds. Bounds are dense up to 100 ms, the range of a healthy relay and consumer: a target of 10
/// or 50 ms cannot be judged between bounds that differ by a factor. 120 and 600 are the backpressure thresholds.
pub(crate) const AGE: &[f64] = &[
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.075, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// Age in milliseconds. 1,000 to 8,000 are the delays of the retry topics, 300,000 is the longest retry delay.
pub(crate) const AGE_MS: &[f64] = &[
    1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 75.0, 100.0, 250.0, 500.0, 1e3, 2e3, 4e3,
    8e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3,
];

/// Rows of one batch; 200 and 1,000 are common batch limits.
pub(crate) const SIZE: &[f64] = &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3];
