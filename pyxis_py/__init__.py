"""The --container-* flags of Slurm's Pyxis plugin, and the launchers behind them."""
