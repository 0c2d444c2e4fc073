"""Figures of attributions, and a page that holds them all."""

from axiograd.report.arrays import bounding_box as bounding_box
from axiograd.report.canvas import save as save
from axiograd.report.figures import compare as compare, feature_bars as feature_bars, heatmap as heatmap
from axiograd.report.notebook import (
    axiom_report_html as axiom_report_html,
    certificate_html as certificate_html,
    explanation_html as explanation_html,
)
from axiograd.report.page import Report as Report
from axiograd.report.texts import (
    text_html as text_html,
    text_rich as text_rich,
    text_svg as text_svg,
    write_text_page as write_text_page,
)
