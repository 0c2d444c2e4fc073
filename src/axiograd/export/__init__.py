"""Prediction, exact attribution and gap as one static graph, in files that need neither axiograd nor autograd."""

from axiograd.export.card import Card as Card, Check as Check, weights_hash as weights_hash
from axiograd.export.exporting import export_onnx as export_onnx, export_pt2 as export_pt2, read as read
from axiograd.export.page import export_page as export_page
