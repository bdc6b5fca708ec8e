//! The successors of a state, with a label for each step.
use std::fmt;

use crate::configuration::Configuration;
use crate::invariants::BrokenRule;
use crate::state::system::System;

/// The component that takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Instance(usize),
    TransactionalId(usize),
    Partition(usize),
    Event(usize),
    Store,
}

/// A step, as a trace prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub component: Component,
    pub text: &'static str,
    /// A second component that the step concerns.
    pub object: Option<Component>,
}

impl fmt::Display for Component {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Component::Instance(number) => write!(out, "instance {number}"),
            Component::TransactionalId(number) => write!(out, "transactional id {number}"),
            Component::Partition(number) => write!(out, "partition {number}"),
            Component::Event(number) => write!(out, "event {number}"),
            Component::Store => out.write_str("store"),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.component, self.text)?;
        self.object.map_or(Ok(()), |object| write!(out, " ({object})"))
    }
}

/// Collects the successors of one state.
pub struct Successors<'a> {
    pub config: &'a Configuration,
    pub from: &'a System,
    pub found: &'a mut Vec<(Label, System)>,
}

impl Successors<'_> {
    /// Whether this rule is switched off.
    pub fn breaks(&self, rule: BrokenRule) -> bool {
        self.config.breaks(rule)
    }

    /// Adds the state that `change` makes of the present one.
    pub fn add(
        &mut self,
        component: Component,
        text: &'static str,
        object: Option<Component>,
        change: impl FnOnce(&mut System, &Configuration),
    ) {
        let mut next = *self.from;
        change(&mut next, self.config);
        next.check_settled(self.config);
        self.found.push((Label { component, text, object }, next));
    }
}
