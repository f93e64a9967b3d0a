"""An additive hazard: how many failures an hour each sign adds, learned beside the trees and known before any label."""
