"""Tests of the wire layer: pure codecs against bytes that Java wrote."""
