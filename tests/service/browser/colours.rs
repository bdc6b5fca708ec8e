//! The colours of the console: those that the browser prefers, until the operator chooses others.
use super::operator_page::OperatorPage;
use crate::harness::backend::Backend;
use crate::harness::process::Posthaste;

/// Whether the page is painted in dark colours.
fn is_dark(page: &mut OperatorPage) -> bool {
    let ground = page.evaluate("getComputedStyle(document.body).backgroundColor");
    ground == "rgb(15, 19, 24)"
}

#[test]
fn chosen_colours_replace_those_of_the_browser_on_every_page() {
    let service = Posthaste::start(&Backend::new(), &[]);
    let Some(mut page) = OperatorPage::log_in("chosen_colours_replace_those_of_the_browser_on_every_page", &service)
    else {
        return;
    };
    page.show_as(1280, true);
    assert!(is_dark(&mut page), "the browser prefers dark colours");

    page.click("#theme");
    assert!(!is_dark(&mut page), "light colours were chosen");
    page.open("/console/outbox");
    assert!(!is_dark(&mut page), "the choice is stored");
    page.wait_for_text("Colours: light");
    page.show_as(1280, false);
    page.click("#theme");
    assert!(is_dark(&mut page), "dark colours were chosen");
    page.click("#theme");
    page.wait_for_text("Colours: auto");
    assert!(!is_dark(&mut page), "the browser prefers light colours now");
}
