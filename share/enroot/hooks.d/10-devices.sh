#!/bin/sh
# Built in: `enroot start` does not execute this file.
exec enroot-hook devices
