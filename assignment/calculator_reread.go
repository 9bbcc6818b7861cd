package assignment

// Reread makes the calculator read the commit again, and everything that it refers to, before it decides anything else: somebody could not.
// What is damaged for good is given up then, and replaced. It returns at once.
func (c *Calculator) Reread() {
	c.reread.Store(true)
	poke(c.nudge)
}
