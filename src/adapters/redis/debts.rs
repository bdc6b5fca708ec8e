//! Keys whose end could not be told. A key that was taken and never completed or given back stays locked by a process that lives: its
//! client would hear "running" until the lock is over, although nothing runs. So the keeper pays these debts once the server is back.
use std::collections::VecDeque;

use parking_lot::Mutex;
use ports::Error;

use crate::link::{Ask, Caller};
use crate::open::Inner;

/// How a key ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It made something: the value to write, and for how long.
    Completed { value: String, keep_ms: u64 },
    /// It made nothing.
    Abandoned,
}

/// A key's name and its end, oldest first.
#[derive(Default)]
pub(crate) struct Debts(Mutex<VecDeque<(String, End)>>);

impl Debts {
    /// Remembers a debt; beyond `max` the oldest is forgotten: its lock is the first to run out by itself.
    fn owe(&self, debt: (String, End), max: usize) {
        let mut debts = self.0.lock();
        debts.push_back(debt);
        while debts.len() > max {
            debts.pop_front();
        }
    }

    fn oldest(&self) -> Option<(String, End)> {
        self.0.lock().front().cloned()
    }

    /// Strikes a debt out, unless it was forgotten meanwhile.
    fn paid(&self, debt: &(String, End)) {
        let mut debts = self.0.lock();
        if debts.front() == Some(debt) {
            debts.pop_front();
        }
    }
}

impl Inner {
    /// Ends a key. What fails because of the server is remembered and done later; a repetition changes nothing.
    pub(crate) async fn end(&self, debt: (String, End)) -> Result<(), Error> {
        let told = match self.away() {
            Some(away) => {
                self.count_failure(Caller::Idempotency);
                Err(away)
            }
            None => self.tell_end(Caller::Idempotency, &debt).await,
        };
        if matches!(told, Err(Error::Unreachable(_) | Error::Unknown(_) | Error::Overloaded(_) | Error::Full(_))) {
            self.debts.owe(debt, self.options.debts_max);
            self.wake.notify_one();
        }
        told
    }

    /// Pays what is owed, oldest first, until a payment fails.
    pub(crate) async fn pay(&self) -> Result<(), Error> {
        while let Some(debt) = self.debts.oldest() {
            match self.tell_end(Caller::Keeper, &debt).await {
                // What the server refuses for good is no debt any more: the lock runs out.
                Ok(()) | Err(Error::Broken(_) | Error::Rejected(_)) => self.debts.paid(&debt),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn tell_end(&self, who: Caller, (key, end): &(String, End)) -> Result<(), Error> {
        let script = match end {
            End::Completed { .. } => &self.scripts.key_complete,
            End::Abandoned => &self.scripts.key_abandon,
        };
        let mut call = script.prepare_invoke();
        call.key(key).arg(&self.boot).arg(&*self.options.instance.0);
        if let End::Completed { value, keep_ms } = end {
            call.arg(value).arg(keep_ms);
        }
        // Whether the key was still ours does not matter here: whoever has it now finds the durable mark.
        self.ask_anyway(who, "end a key", Ask::Script(&call)).await.map(|_: i64| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_debt_is_paid_first_and_the_first_to_be_forgotten() {
        let debt = |name: &str| (name.to_owned(), End::Abandoned);
        let debts = Debts::default();
        for name in ["a", "b", "c"] {
            debts.owe(debt(name), 2);
        }
        assert_eq!(debts.oldest(), Some(debt("b")));

        debts.paid(&debt("a"));
        assert_eq!(debts.oldest(), Some(debt("b")), "it was forgotten before it was paid");
        debts.paid(&debt("b"));
        debts.paid(&debt("c"));

        assert_eq!(debts.oldest(), None);
    }
}
