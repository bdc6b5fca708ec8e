//! The pages update themselves, at the interval that the operator chose.
use super::operator_page::OperatorPage;
use crate::harness::backend::Backend;
use crate::harness::process::Posthaste;

const CHOOSE_A_SECOND: &str = "(() => { const period = document.getElementById('period'); period.value = '1000'; \
                               period.dispatchEvent(new Event('change')); })()";

#[test]
fn chosen_interval_of_the_updates_is_kept_on_every_page() {
    let service = Posthaste::start(&Backend::new(), &[]);
    let Some(mut page) = OperatorPage::log_in("chosen_interval_of_the_updates_is_kept_on_every_page", &service) else {
        return;
    };
    let offered = "document.getElementById('period')?.hidden === false && document.getElementById('period').value";
    page.wait_for("two seconds are the default", &format!("{offered} === '2000'"));

    page.evaluate(CHOOSE_A_SECOND);
    page.open("/console/outbox");

    page.wait_for("the choice is kept", &format!("{offered} === '1000'"));
    let updates = "performance.getEntriesByType('resource').filter((entry) => entry.initiatorType === 'fetch').length";
    page.wait_for("the page updates again and again", &format!("{updates} >= 2"));
}
