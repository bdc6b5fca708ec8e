//! The keeper: a thread that sees to what must be there on the broker before anything else works, notices when a broker comes back, and
//! answers questions about the cluster.
use std::sync::Arc;
use std::time::{Duration, Instant};

use ports::Error;
use ports::probe::ProbeReport;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::Cluster;
use crate::contact::Contact;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::renewal::Trust;
use crate::replicas::Replicas;

/// Between two looks at whether all is as it should be; costs nothing while it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Questions that may wait. They come from probes and commands, one at a time.
const ASKS: usize = 64;

/// What the keeper knows about the topics of the installation.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Not asked yet: no broker was there.
    Unreached(Error),
    /// All is there, and as it must be.
    Ready,
    /// Something is not as it must be; a human mends it.
    Refused(Error),
}

/// A question to the keeper.
pub(crate) enum Ask {
    /// Make and check these topics; all of the installation when none is named.
    Ensure {
        /// Full names.
        names: Vec<String>,
        /// Whom to tell.
        answer: oneshot::Sender<Result<(), Error>>,
    },
    /// How often topics are kept.
    Replicas {
        /// Whom to tell.
        answer: oneshot::Sender<Result<Replicas, Error>>,
    },
    /// A sign of life.
    ProbeReport {
        /// Whom to tell.
        answer: oneshot::Sender<Result<ProbeReport, Error>>,
    },
}

/// A hand on the keeper. Its thread ends when this is dropped.
pub(crate) struct Keeper {
    asks: mpsc::Sender<Ask>,
    standing: watch::Receiver<Standing>,
    contact: Arc<Contact>,
    patience: Duration,
}

impl Keeper {
    pub(crate) fn start(options: Arc<Options>, contact: Arc<Contact>) -> Result<Self, OpenError> {
        let (asks, asked) = mpsc::channel(ASKS);
        let (told, standing) =
            watch::channel(Standing::Unreached(Error::Unreachable("no broker was reached yet".into())));
        let patience = options.connect_within;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let cluster =
            Cluster::new(options, Arc::clone(&contact)).map_err(|error| OpenError::Options(error.to_string()))?;
        let work = Work { cluster, trust: Trust::default(), contact: Arc::clone(&contact), told };
        std::thread::Builder::new().name("kafka-keeper".into()).spawn(move || runtime.block_on(work.run(asked)))?;
        Ok(Self { asks, standing, contact, patience })
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask<T>(&self, with: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Ask) -> Result<T, Error> {
        let (answer, told) = oneshot::channel();
        let full = |_| Error::Overloaded("the broker's keeper has too many questions".into());
        self.asks.try_send(with(answer)).map_err(full)?;
        told.await.unwrap_or_else(|_| Err(crate::open::gone()))
    }

    /// Waits, not long, until the installation's topics are known to be as they must be.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut standing = self.standing.clone();
        if self.contact.is_away() && !matches!(*standing.borrow(), Standing::Ready) {
            return told(&standing.borrow());
        }
        let known = standing.wait_for(|standing| !matches!(standing, Standing::Unreached(_)));
        match tokio::time::timeout(self.patience, known).await {
            Ok(Ok(standing)) => told(&standing),
            Ok(Err(_)) => Err(crate::open::gone()),
            Err(_) => told(&self.standing.borrow()),
        }
    }
}

fn told(standing: &Standing) -> Result<(), Error> {
    match standing {
        Standing::Ready => Ok(()),
        Standing::Unreached(error) | Standing::Refused(error) => Err(error.clone()),
    }
}

struct Work {
    cluster: Cluster,
    trust: Trust,
    contact: Arc<Contact>,
    told: watch::Sender<Standing>,
}

impl Work {
    async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        loop {
            self.look().await;
            // A question that is lost here was not received: `recv` is cancel-safe.
            match tokio::time::timeout(LOOK_EVERY, asked.recv()).await {
                Ok(Some(ask)) => self.answer(ask).await,
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    /// Until all is ready, and again when a broker came back: it may be another cluster's.
    async fn look(&mut self) {
        self.cluster.listen();
        let ready = self.is_ready();
        if !ready || self.contact.is_away() {
            let begun = Instant::now();
            let ensured = self.cluster.ensure(&[]).await;
            self.judge(begun, &ensured);
            self.told_by(ensured, ready);
        }
    }

    /// Clients that reach nobody for long are replaced: they may be what is wrong.
    fn judge<T>(&mut self, begun: Instant, answer: &Result<T, Error>) {
        let reached = !matches!(answer, Err(Error::Unreachable(_) | Error::Unknown(_)));
        self.trust.renewed(reached, begun, || self.cluster.renew());
    }

    fn told_by(&self, ensured: Result<(), Error>, was_ready: bool) {
        match ensured {
            Ok(()) => self.tell(Standing::Ready),
            // What was ready once stays so through an outage: callers meet the outage themselves.
            Err(Error::Unreachable(_) | Error::Unknown(_)) if was_ready => {}
            Err(error @ (Error::Unreachable(_) | Error::Unknown(_))) => {
                self.contact.lost(&error.to_string());
                self.tell(Standing::Unreached(error));
            }
            Err(error) => {
                let news = !matches!(*self.told.borrow(), Standing::Refused(_));
                if news {
                    tracing::error!(event = "broker_refused", error = %error, "the broker's topics are not as they must be");
                }
                self.tell(Standing::Refused(error));
            }
        }
    }

    /// The look ends here: whoever tells while it is held waits for ever.
    fn is_ready(&self) -> bool {
        matches!(*self.told.borrow(), Standing::Ready)
    }

    fn tell(&self, standing: Standing) {
        self.told.send_replace(standing);
    }

    async fn answer(&mut self, ask: Ask) {
        let begun = Instant::now();
        match ask {
            Ask::Ensure { names, answer } => {
                let ensured = self.cluster.ensure(&names).await;
                self.judge(begun, &ensured);
                if names.is_empty() {
                    let was_ready = self.is_ready();
                    self.told_by(ensured.clone(), was_ready);
                }
                // Whoever asked may have gone: what was made stands.
                drop(answer.send(ensured));
            }
            Ask::Replicas { answer } => drop(answer.send(self.cluster.replicas())),
            Ask::ProbeReport { answer } if answer.is_closed() => drop(answer),
            Ask::ProbeReport { answer } => {
                let pulse = match &*self.told.borrow() {
                    Standing::Refused(error) => Err(error.clone()),
                    Standing::Ready | Standing::Unreached(_) => Ok(()),
                };
                let pulse = match pulse {
                    Ok(()) => self.cluster.pulse().await,
                    Err(error) => Err(error),
                };
                self.judge(begun, &pulse);
                drop(answer.send(pulse));
            }
        }
    }
}
