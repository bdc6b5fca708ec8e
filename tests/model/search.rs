//! Breadth-first search over all states of a configuration, then backwards from the goal states.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::actions::successors;
use crate::configuration::Configuration;
use crate::invariants::Violation;
use crate::state::normal_form::normalize;
use crate::state::system::System;
use crate::successors::Label;
use crate::trace::{Counterexample, Step};

/// The result of one search.
#[derive(Debug)]
pub struct SearchResult {
    /// Number of distinct states found.
    pub states: usize,
    /// Number of steps between them.
    pub steps: usize,
    /// Length of the longest shortest path.
    pub depth: usize,
    pub elapsed: Duration,
    /// Whether no state is left unexplored.
    pub is_exhaustive: bool,
    /// The first violation with a shortest path to it.
    pub counterexample: Option<Counterexample>,
}

/// Searches until the first violation, or all states, or `states_max`.
pub fn search(config: &Configuration, states_max: usize) -> SearchResult {
    let started = Instant::now();
    let mut graph = Graph::default();
    let mut frontier = vec![(0, graph.begin(config))];
    let (mut depth, mut found) = (0, None);
    let mut successors_of_one = Vec::new();
    while found.is_none() && !frontier.is_empty() && graph.parents.len() < states_max {
        let mut next = Vec::new();
        for (number, system) in &frontier {
            found = graph.expand(config, *number, system, &mut successors_of_one, &mut next);
            if found.is_some() || graph.parents.len() >= states_max {
                break;
            }
        }
        frontier = next;
        depth += 1;
    }
    let is_exhaustive = frontier.is_empty() && graph.parents.len() < states_max;
    if found.is_none() && is_exhaustive {
        found = graph.first_without_path_to_goal().map(|number| (number, Violation::Stuck));
    }
    SearchResult {
        states: graph.parents.len(),
        steps: graph.edges.len(),
        depth,
        elapsed: started.elapsed(),
        is_exhaustive,
        counterexample: found.map(|(number, violation)| graph.counterexample(config, number, violation)),
    }
}

/// States by number, in the order of their discovery. Of a state itself only a fingerprint of 64 bits is kept: among 10 million states two
/// share one with a probability of about 1 to 400,000.
#[derive(Default)]
struct Graph {
    numbers: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    parents: Vec<u32>,
    /// Which successor of its parent the state is.
    ordinals: Vec<u8>,
    is_goal: Vec<bool>,
    /// Each step, as (to, from).
    edges: Vec<(u32, u32)>,
}

impl Graph {
    fn begin(&mut self, config: &Configuration) -> System {
        let mut first = System::first(config);
        normalize(&mut first, config);
        self.add(config, &first, 0, 0);
        first
    }

    /// The number of the state, and whether it is new.
    fn add(&mut self, config: &Configuration, system: &System, parent: u32, ordinal: usize) -> (u32, bool) {
        let new = self.parents.len() as u32;
        let number = *self.numbers.entry(fingerprint(system)).or_insert(new);
        if number == new {
            self.parents.push(parent);
            self.ordinals.push(ordinal as u8);
            self.is_goal.push(system.is_goal(config));
        }
        (number, number == new)
    }

    fn expand(
        &mut self,
        config: &Configuration,
        from: u32,
        system: &System,
        found: &mut Vec<(Label, System)>,
        next: &mut Vec<(u32, System)>,
    ) -> Option<(u32, Violation)> {
        successors(config, system, found);
        for (ordinal, (_, successor)) in found.iter_mut().enumerate() {
            normalize(successor, config);
            let (number, is_new) = self.add(config, successor, from, ordinal);
            self.edges.push((number, from));
            if let Some(violation) = successor.violation {
                return Some((number, violation));
            }
            if is_new {
                next.push((number, *successor));
            }
        }
        None
    }

    /// Guarantee 2: the first state from which no path leads to a goal state.
    fn first_without_path_to_goal(&self) -> Option<u32> {
        let count = self.parents.len();
        let mut ends = vec![0_u32; count + 1];
        self.edges.iter().for_each(|(to, _)| ends[*to as usize + 1] += 1);
        (0..count).for_each(|number| ends[number + 1] += ends[number]);
        let (mut next_indices, mut sources) = (ends.clone(), vec![0_u32; self.edges.len()]);
        for (to, from) in &self.edges {
            let next_index = &mut next_indices[*to as usize];
            sources[*next_index as usize] = *from;
            *next_index += 1;
        }
        let mut reaches_goal = self.is_goal.clone();
        let mut open: Vec<u32> = (0..count as u32).filter(|number| reaches_goal[*number as usize]).collect();
        while let Some(number) = open.pop() {
            let (begin, end) = (ends[number as usize] as usize, ends[number as usize + 1] as usize);
            for source in &sources[begin..end] {
                if !std::mem::replace(&mut reaches_goal[*source as usize], true) {
                    open.push(*source);
                }
            }
        }
        reaches_goal.iter().position(|reaches| !reaches).map(|number| number as u32)
    }

    fn counterexample(&self, config: &Configuration, end: u32, violation: Violation) -> Counterexample {
        let mut ordinals = Vec::new();
        let mut number = end;
        while number != 0 {
            ordinals.push(self.ordinals[number as usize]);
            number = self.parents[number as usize];
        }
        let mut system = System::first(config);
        normalize(&mut system, config);
        let (mut found, mut steps) = (Vec::new(), Vec::new());
        for ordinal in ordinals.into_iter().rev() {
            successors(config, &system, &mut found);
            let (label, next) = found[ordinal as usize];
            system = next;
            normalize(&mut system, config);
            steps.push(Step { label, system });
        }
        Counterexample { violation, steps }
    }
}

fn fingerprint(system: &System) -> u64 {
    let mut hasher = Fingerprint(0x9E37_79B9_7F4A_7C15);
    system.hash(&mut hasher);
    hasher.finish()
}

/// Mixes each number with a folded multiplication.
struct Fingerprint(u64);

impl Fingerprint {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0xE703_7ED1_A0B4_28DB_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64).wrapping_add(value).rotate_left(29);
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

/// Fingerprints are spread already.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are keys")
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
